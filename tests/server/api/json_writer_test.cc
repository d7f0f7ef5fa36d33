#include "server/api/json_writer.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

#include "server/api/sse_event.h"

namespace baton {
namespace {

template <typename T>
std::string Alone(const T& value) {
  std::string text;
  JsonWriter(&text).Value(value);
  return text;
}

TEST_CASE("objects and arrays: commas between what stands beside each other, none elsewhere") {
  CHECK(JsonObject([](JsonWriter&) {}) == "{}");
  const std::string text = JsonObject([](JsonWriter& json) {
    json.Field("id", 7);
    json.Array("empty", [] {});
    json.Array("list", [&] {
      json.Value(1);
      json.Object([&] { json.Field("a", nullptr); });
      json.Object([] {});
      json.Array([&] { json.Value(true); });
      json.Value("last");
    });
    json.Object("object", [&] {
      json.Object("inner", [] {});
      json.FieldOrNull("none", "");
      json.FieldOrNull("some", "x");
    });
    json.FixedField("ms", 1.0, 3);
    json.Array("fixed", [&] {
      json.FixedValue(-0.12345, 3);
      json.FixedValue(2, 0);
    });
  });
  CHECK(text == R"({"id":7,"empty":[],"list":[1,{"a":null},{},[true],"last"],)"
                R"("object":{"inner":{},"none":null,"some":"x"},"ms":1.000,"fixed":[-0.123,2]})");
}

TEST_CASE("numbers and words") {
  CHECK(Alone(std::numeric_limits<int64_t>::min()) == "-9223372036854775808");
  CHECK(Alone(std::numeric_limits<uint64_t>::max()) == "18446744073709551615");
  CHECK(Alone(size_t{0}) == "0");
  CHECK(Alone(true) == "true");
  CHECK(Alone(false) == "false");
  CHECK(Alone(nullptr) == "null");
}

TEST_CASE("numbers with a fraction are read back with the same bits, and look like ones") {
  CHECK(Alone(-1.25) == "-1.25");
  CHECK(Alone(-9999.0) == "-9999.0");
  CHECK(Alone(0.0f) == "0.0");
  CHECK(Alone(1e300) == "1e+300");
  CHECK(Alone(-1e-7) == "-1e-07");
  for (const float value : {-0.1f, 1e-7f, -13.8155107f, 3.4028235e38f}) {
    CHECK(std::stod(Alone(value)) == static_cast<double>(value));
  }
}

TEST_CASE("strings: escaped, and valid UTF-8 whatever they hold") {
  CHECK(Alone("") == R"("")");
  CHECK(Alone("plain ~ text") == R"("plain ~ text")");
  CHECK(Alone(std::string("a\"b\\c\nd\re\tf")) == R"("a\"b\\c\nd\re\tf")");
  CHECK(Alone(std::string("\0\x01\x1f\x7f", 4)) == "\"\\u0000\\u0001\\u001f\x7f\"");
  CHECK(Alone("/</script>") == R"("/</script>")");
  CHECK(Alone("é 東 🦆") == "\"é 東 🦆\"");
  CHECK(Alone("a\xff"
              "b\xe6\x9d") ==
        "\"a\uFFFD"
        "b\uFFFD\"");
  CHECK(JsonObject([](JsonWriter& json) { json.Field("k\"", 0); }) == R"({"k\"":0})");
}

TEST_CASE("writers append, an event frames its data") {
  std::string text = "x";
  JsonWriter json(&text);
  json.Array([&] { json.Value("y"); });
  CHECK(text == R"(x["y"])");
  CHECK(SseEvent(text) == "data: x[\"y\"]\n\n");
}

}  // namespace
}  // namespace baton
