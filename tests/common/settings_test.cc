#include "common/settings.h"

#include <catch2/catch.hpp>
#include <fstream>

namespace baton {
namespace {

struct Example {
  int max_batch = 16;
  int port = 8000;
  bool colocated = false;
  double weight = 0.5;
  int64_t memory = int64_t{1} << 30;
  absl::Duration timeout = absl::Seconds(15);
  std::string cpus;
  std::string dtype = "auto";
  Settings settings;

  Example() {
    settings.Int("server.port", &port, 0, 65535, "port");
    settings.Bool("server.colocated", &colocated, "colocated");
    settings.Int("decode.max_batch", &max_batch, 1, 4096, "rows");
    settings.Number("decode.weight", &weight, 0, 1, "weight");
    settings.Bytes("decode.memory", &memory, 0, int64_t{1} << 40, "memory");
    settings.Duration("decode.timeout", &timeout, absl::ZeroDuration(), absl::Hours(1), "time");
    settings.Text("decode.cpus", &cpus, "cpus");
    settings.Choice("decode.dtype", &dtype, {"auto", "bf16", "fp32"}, "dtype");
  }
  std::string Error(const std::string& yaml) {
    return std::string(settings.ReadText(yaml, "baton.yaml").message());
  }
};

TEST_CASE("a file sets what it names and leaves the rest") {
  Example example;
  REQUIRE(example.settings
              .ReadText("server:\n  port: 0\n  colocated: true\ndecode:\n  max_batch: 64\n"
                        "  memory: 8GiB\n  timeout: 250ms\n  cpus: \"0-1,3\"\n  weight: 1e-2\n"
                        "  dtype: fp32\n",
                        "baton.yaml")
              .ok());
  CHECK(example.port == 0);
  CHECK(example.colocated);
  CHECK(example.max_batch == 64);
  CHECK(example.memory == int64_t{8} << 30);
  CHECK(example.timeout == absl::Milliseconds(250));
  CHECK(example.cpus == "0-1,3");
  CHECK(example.weight == 0.01);
  CHECK(example.dtype == "fp32");
  CHECK(example.settings.Find("decode.max_batch")->origin == "baton.yaml:5");

  Example untouched;
  REQUIRE(untouched.settings.ReadText("", "empty.yaml").ok());
  REQUIRE(untouched.settings.ReadText("# nothing\ndecode:\n", "comment.yaml").ok());
  CHECK(untouched.max_batch == 16);
  CHECK(untouched.settings.Find("decode.max_batch")->origin == "default");
}

TEST_CASE("flags win over the file and are remembered as origin") {
  Example example;
  REQUIRE(example.settings.ReadText("server: {port: 1}\n", "baton.yaml").ok());
  REQUIRE(example.settings.SetFlag("server.port", "9000", "--port").ok());
  CHECK(example.port == 9000);
  CHECK(example.settings.Find("server.port")->origin == "--port");
  CHECK(example.settings.SetFlag("server.port", "x", "--port").message() ==
        "--port: server.port: \"x\" must be an integer from 0 to 65535");
}

TEST_CASE("errors name file, line, key, value and what is allowed") {
  Example example;
  CHECK(example.Error("decode:\n  max_batch: many\n") ==
        "baton.yaml:2: decode.max_batch: \"many\" must be an integer from 1 to 4096");
  CHECK(example.Error("decode:\n  max_batch: 0\n") ==
        "baton.yaml:2: decode.max_batch: \"0\" must be an integer from 1 to 4096");
  CHECK(
      example.Error("decode:\n  max_batch: 99999999999999999999\n") ==
      "baton.yaml:2: decode.max_batch: \"99999999999999999999\" must be an integer from 1 to 4096");
  CHECK(example.Error("\n\ndecode:\n  max_bach: 4\n") ==
        "baton.yaml:4: unknown key decode.max_bach; did you mean decode.max_batch?");
  CHECK(example.Error("server:\n  max_batch: 4\n") ==
        "baton.yaml:2: unknown key server.max_batch; did you mean decode.max_batch?");
  CHECK(example.Error("zzzzzzzzz: 4\n") ==
        "baton.yaml:1: unknown key zzzzzzzzz; `baton config` lists all keys");
  CHECK(example.Error("decode:\n  dtype: int3\n") ==
        "baton.yaml:2: decode.dtype: \"int3\" must be one of auto, bf16, fp32");
  CHECK(example.Error("server:\n  colocated: 1\n") ==
        "baton.yaml:2: server.colocated: \"1\" must be true or false");
  CHECK(example.Error("decode:\n  memory: 8GB\n") ==
        "baton.yaml:2: decode.memory: \"8GB\" must be a size from 0 to 1024GiB "
        "(like 512KiB, 64MiB, 8GiB)");
  CHECK(example.Error("decode:\n  memory: 99999999999GiB\n").find("must be a size") !=
        std::string::npos);
  CHECK(example.Error("decode:\n  timeout: 15\n") ==
        "baton.yaml:2: decode.timeout: \"15\" must be a time from 0 to 1h "
        "(like 200ms, 15s, 2m)");
  CHECK(example.Error("decode:\n  weight: .nan\n").find("must be a number") != std::string::npos);
  CHECK(example.max_batch == 16);
}

TEST_CASE("hostile YAML is an error with a place, never a crash") {
  const struct {
    const char* text;
    const char* part;
  } kCases[] = {
      {"decode: [1, 2]\n", "baton.yaml:1: decode must have one plain value"},
      {"decode:\n  max_batch: [1]\n", "baton.yaml:2: decode.max_batch must have one plain value"},
      {"decode:\n  max_batch:\n", "baton.yaml:2: decode.max_batch must have one plain value"},
      {"decode:\n  max_batch: {a: {b: {c: 1}}}\n", "must have one plain value"},
      {"decode:\n  max_batch: 4\n  max_batch: 5\n", "is given twice (first in line 2)"},
      {"decode: {max_batch: 4}\ndecode: {max_batch: 5}\n", "is given twice (first in line 1)"},
      {"decoed:\n", "baton.yaml:1: decoed is not a section"},
      {"just text\n", "sections of `key: value`"},
      {"- a\n- b\n", "sections of `key: value`"},
      {"decode: {max_batch: 4\n", "not YAML"},
      {"decode:\n\tmax_batch: 4\n", "not YAML"},
      {"decode: *absent\n", "not YAML"},
      {"{[1]: 2}\n", "a key must be a plain name"},
      {"a: &x {p: 1}\n<<: *x\n", "unknown key"},
      {"decode: {max_batch: 4}\n---\ndecode: {max_batch: 5}\n", "a second document"},
      {",", "a second document"},  // yaml-cpp takes nothing of it
      {"\"\\x00\": 1\n", "unknown key"},
      {"%YAML 9.9\n--- {}\n", "not YAML"},
  };
  for (const auto& [text, part] : kCases) {
    Example example;
    const std::string error = example.Error(text);
    INFO(text << "\n-> " << error);
    CHECK(error.find(part) != std::string::npos);
    CHECK(example.max_batch != 5);
  }
}

TEST_CASE("nesting, size and aliases have limits") {
  Example example;
  CHECK(!example.settings.ReadText(std::string(100000, '['), "deep.yaml").ok());
  CHECK(!example.settings.ReadText(std::string(2 << 20, ' '), "long.yaml").ok());
  std::string laughs = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string n = std::to_string(i), before = std::to_string(i - 1);
    laughs += "a" + n + ": &a" + n + " {p: *a" + before + ", q: *a" + before + "}\n";
  }
  CHECK(!example.settings.ReadText(laughs, "laughs.yaml").ok());
  CHECK(example.settings.ReadFile("/nonexistent/baton.yaml").code() == absl::StatusCode::kNotFound);
  CHECK(!example.settings.ReadFile("/").ok());
  CHECK(!example.settings.ReadFile("/dev/zero").ok());
}

TEST_CASE("the resolved configuration reads back to the same values") {
  Example example;
  REQUIRE(example.settings.SetFlag("decode.cpus", "a\"b\\c\nd # e", "--decode.cpus").ok());
  REQUIRE(example.settings.SetFlag("decode.timeout", "90s", "--decode.timeout").ok());
  REQUIRE(example.settings.SetFlag("decode.weight", "0.1", "--decode.weight").ok());
  CHECK(example.settings.Find("decode.weight")->get() == "0.1");
  const std::string text = example.settings.Resolved();
  CHECK(text.find("# --decode.timeout") != std::string::npos);
  Example copy;
  REQUIRE(copy.settings.ReadText(text, "resolved").ok());
  CHECK(copy.cpus == example.cpus);
  CHECK(copy.timeout == absl::Seconds(90));
  CHECK(copy.weight == 0.1);
  CHECK(copy.memory == example.memory);
  CHECK(copy.port == 8000);
}

TEST_CASE("a renamed key is refused with its new name") {
  Example example;
  example.settings.Renamed("server.rows", "decode.max_batch");
  CHECK(example.Error("server:\n  rows: 4\n") ==
        "baton.yaml:2: server.rows was renamed to decode.max_batch");
  CHECK(example.settings.SetFlag("server.rows", "4", "--server.rows").message() ==
        "--server.rows was renamed to decode.max_batch");
  CHECK(example.max_batch == 16);
  CHECK(example.settings.NewName("server.rows") == "decode.max_batch");
  CHECK(example.settings.NewName("decode.max_batch").empty());
}

TEST_CASE("a key declared again sets both targets") {
  Example example;
  int second = 16;
  example.settings.Int("decode.max_batch", &second, 1, 4096, "rows");
  REQUIRE(example.settings.SetFlag("decode.max_batch", "5", "--decode.max_batch").ok());
  CHECK(example.max_batch == 5);
  CHECK(second == 5);
  REQUIRE_FALSE(example.settings.SetFlag("decode.max_batch", "0", "--decode.max_batch").ok());
  CHECK(example.max_batch == 5);
  CHECK(second == 5);
}

TEST_CASE("choices and sizes have the types of their targets") {
  enum class Colour { kRed, kBlue };
  Colour colour = Colour::kBlue;
  size_t room = 4096;
  Settings settings;
  settings.Choice<Colour>("paint.colour", &colour, {{"red", Colour::kRed}, {"blue", Colour::kBlue}},
                          "colour");
  settings.Bytes("paint.room", &room, 0, 1 << 20, "room");
  CHECK(settings.Find("paint.colour")->get() == "blue");
  REQUIRE(settings.ReadText("paint:\n  colour: red\n  room: 64KiB\n", "paint.yaml").ok());
  CHECK(colour == Colour::kRed);
  CHECK(room == 65536);
  CHECK(settings.SetFlag("paint.colour", "green", "--paint.colour").message() ==
        "--paint.colour: \"green\" must be one of red, blue");
}

TEST_CASE("the reference has a table per section, in the order that was declared") {
  int rows = 4;
  std::string name;
  Settings settings;
  settings.Section("late", "Comes first.");
  settings.Int("early.rows", &rows, 1, 9, "a | b");
  settings.Text("late.name", &name, "of it");
  settings.Int("early.other", &rows, 1, 9, "more");
  CHECK(settings.Markdown() ==
        "\n## late\n\nComes first.\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n"
        "| `late.name` | `\"\"` | text | of it |\n"
        "\n## early\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n"
        "| `early.rows` | `4` | an integer from 1 to 9 | a \\| b |\n"
        "| `early.other` | `4` | an integer from 1 to 9 | more |\n");
}

}  // namespace
}  // namespace baton
