#include "server/command_line.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/model_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<CommandLine> Parse(const std::vector<std::string>& args) {
  auto line = ParseCommandLine(args);
  INFO((line.ok() ? std::string() : std::string(line.status().message())));
  REQUIRE(line.ok());
  return *std::move(line);
}
std::string Error(const std::vector<std::string>& args) {
  const auto line = ParseCommandLine(args);
  REQUIRE_FALSE(line.ok());
  return std::string(line.status().message());
}

struct Folder {
  Folder() : path(fs::temp_directory_path() / absl::StrCat("baton_cli_", ::getpid())) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

TEST_CASE("help fits a terminal of 24 lines of 80 columns") {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {}, {"--help"}, {"-h"}, {"serve", "--help"}, {"bench", "--help"}, {"bench"}}) {
    const std::string text = Parse(args)->text;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    CHECK(lines.size() <= 25);  // and the prompt's own
    for (const std::string& line : lines) CHECK(line.size() <= 80);
  }
}

TEST_CASE("commands and the flags people know") {
  CHECK(Parse({"version"})->text.rfind("baton ", 0) == 0);
  CHECK(Parse({"--version"})->text.rfind("baton ", 0) == 0);
  const auto line =
      Parse({"serve", "some/model", "--prefill", "3", "--decode=2", "--port", "9", "--colocated",
             "--decode.max_batch=64", "--served-model-name", "x", "--max-model-len", "128"});
  CHECK(line->command == Command::kServe);
  CHECK(line->config.model.path == "some/model");
  CHECK(line->config.model.name == "x");
  CHECK(line->config.model.max_context == 128);
  CHECK(line->config.prefill.workers == 3);
  CHECK(line->config.decode.workers == 2);
  CHECK(line->config.decode.max_batch == 64);
  CHECK(line->config.server.port == 9);
  CHECK(line->config.cluster.colocated);
  CHECK(line->settings.Find("server.port")->origin == "--port");
  CHECK(Parse({"serve", "--colocated=false", "m"})->config.cluster.colocated == false);
  const auto demo = Parse({"serve", "--demo"});
  CHECK(demo->config.model.name == "demo");
  CHECK(fs::exists(fs::path(demo->config.model.path) / "config.json"));
  CHECK(Parse({"prefill", "m", "--start-descriptor", "3"})->start_descriptor == 3);
  CHECK(Parse({"config", "--keys"})->text.find("decode.max_batch = 64") != std::string::npos);
  CHECK(Parse({"bench", "load", "--requests", "3"})->command == Command::kBench);
}

TEST_CASE("slips get a suggestion") {
  CHECK(Error({"serv"}) == "unexpected argument serv; did you mean baton serve?");
  CHECK(Error({"serve", "m", "--prot", "1"}) == "unknown flag --prot; did you mean --port?");
  CHECK(Error({"serve", "m", "--decode.max_bach=4"}) ==
        "unknown flag --decode.max_bach; did you mean --decode.max_batch?");
  CHECK(Error({"serve", "--port", "x"}) ==
        "flag server.port: \"x\" must be an integer from 0 to 65535");
  CHECK(Error({"serve", "m", "--demo"}).find("not both") != std::string::npos);
  CHECK(Error({"serve", "m", "--page-tokens=48"}).find("16, 32 or 64") != std::string::npos);
  CHECK(Error({"serve", "m", "--decode.cpus=a"}).find("CPU list") != std::string::npos);
}

TEST_CASE("the file is read, flags win, the resolved configuration reads back") {
  Folder folder;
  const std::string file = (folder.path / "baton.yaml").string();
  std::ofstream(file) << "server:\n  port: 7000\ndecode:\n  max_batch: 8\n";
  const auto line = Parse({"config", "--config", file, "--port=7001"});
  CHECK(line->config.server.port == 7001);
  CHECK(line->config.decode.max_batch == 8);
  const std::string resolved = line->settings.Resolved();
  CHECK(resolved.find(file + ":4") != std::string::npos);
  std::ofstream(file) << resolved;
  const auto again = Parse({"config", "--config", file});
  CHECK(again->config.server.port == 7001);
  CHECK(again->config.decode.max_batch == 8);
  std::ofstream(file) << "decode:\n  max_bach: 8\n";
  CHECK(Error({"serve", "m", "--config", file}) ==
        file + ":2: unknown key decode.max_bach; did you mean decode.max_batch?");
}

TEST_CASE("models are found as folders, hub ids and shapes; errors say where was looked") {
  Folder folder;
  const fs::path model = folder.path / "mine";
  ModelConfig config;
  config.path = model.string();
  config.hf_cache = (folder.path / "hub").string();
  std::string message(ResolveModel(&config).message());
  CHECK(message.find(model.string() + ": no such folder") != std::string::npos);
  fs::create_directories(model);
  CHECK(std::string(ResolveModel(&config).message()).find("no config.json") != std::string::npos);
  std::ofstream(model / "config.json") << "{}";
  REQUIRE(ResolveModel(&config).ok());
  CHECK(config.name == "mine");

  ModelConfig shape;
  shape.path = "random:" + (model / "config.json").string();
  REQUIRE(ResolveModel(&shape).ok());
  CHECK(shape.name == "config");
  shape.path = "random:/no/such/file";
  CHECK(std::string(ResolveModel(&shape).message()).find("/no/such/file") != std::string::npos);
  ModelConfig nothing;
  CHECK(std::string(ResolveModel(&nothing).message()).find("--demo") != std::string::npos);
}

TEST_CASE("a hub id is a snapshot of the local cache, by its revision") {
  Folder folder;
  const fs::path hub = folder.path / "hub", repo = hub / "models--org--name";
  const auto resolve = [&](const std::string& given, std::string* error = nullptr) {
    ModelConfig config;
    config.path = given;
    config.hf_cache = hub.string();
    const absl::Status status = ResolveModel(&config);
    if (error != nullptr) *error = std::string(status.message());
    if (!status.ok()) return std::string();
    CHECK(config.name == given.substr(0, given.find('@')));
    return fs::path(config.path).filename().string();
  };
  const auto snapshot = [&](const std::string& commit, bool is_whole = true) {
    fs::create_directories(repo / "snapshots" / commit);
    if (is_whole) std::ofstream(repo / "snapshots" / commit / "config.json") << "{}";
  };
  const auto ref = [&](const std::string& name, const std::string& commit) {
    fs::create_directories((repo / "refs" / name).parent_path());
    std::ofstream(repo / "refs" / name) << commit;
  };
  const auto error = [&](const std::string& given) {
    std::string message;
    CHECK(resolve(given, &message).empty());
    return message;
  };
  using Catch::Matchers::Contains;

  CHECK_THAT(error("org/name"), Contains(hub.string()) && Contains("hf download org/name,"));
  snapshot("abc");
  CHECK(resolve("org/name") == "abc");  // the only one there is
  snapshot("def");
  CHECK_THAT(error("org/name"), Contains("has no revision main; run: hf download org/name"));
  ref("main", "def");
  ref("v1.0", "abc");
  ref("refs/pr/7", "abc");
  CHECK(resolve("org/name") == "def");
  CHECK(resolve("org/name@main") == "def");
  CHECK(resolve("org/name@v1.0") == "abc");
  CHECK(resolve("org/name@refs/pr/7") == "abc");
  CHECK(resolve("org/name@abc") == "abc");
  CHECK_THAT(error("org/name@v2"),
             Contains("has no revision v2; run: hf download org/name --revision v2"));
  snapshot("half", false);
  ref("v3", "half");
  CHECK_THAT(error("org/name@v3"), Contains("half has no config.json") && Contains("hf download"));
  ref("evil", "../../..");
  CHECK_THAT(error("org/name@evil"), Contains("has no revision evil"));

  // What cannot be an id is a folder that is not there; nothing leads out of the cache.
  for (const std::string path : {"/no/such/folder", "./none", "../org", "a/b/c", "org/..", "org/",
                                 "/name", "org/name@", "org/name@../x", "org/name@/abc"}) {
    INFO(path);
    CHECK_THAT(error(path), Contains("no such folder"));
  }
}

}  // namespace
}  // namespace baton
