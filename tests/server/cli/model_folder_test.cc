// The folder for a model's name, with the local Hugging Face cache.
#include "server/config/model_folder.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / absl::StrCat("baton_model_", ::getpid())) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

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

  CHECK_THAT(error("org/name"), Contains(hub.string()) && Contains("run: baton pull org/name,"));
  snapshot("abc");
  CHECK(resolve("org/name") == "abc");  // the only revision
  snapshot("def");
  CHECK_THAT(error("org/name"), Contains("has no revision main; run: baton pull org/name"));
  ref("main", "def");
  ref("v1.0", "abc");
  ref("refs/pr/7", "abc");
  CHECK(resolve("org/name") == "def");
  CHECK(resolve("org/name@main") == "def");
  CHECK(resolve("org/name@v1.0") == "abc");
  CHECK(resolve("org/name@refs/pr/7") == "abc");
  CHECK(resolve("org/name@abc") == "abc");
  CHECK_THAT(error("org/name@v2"), Contains("has no revision v2; run: baton pull org/name@v2"));
  snapshot("half", false);
  ref("v3", "half");
  CHECK_THAT(error("org/name@v3"),
             Contains("half has no config.json") && Contains("run: baton pull org/name@v3"));
  ref("evil", "../../..");
  CHECK_THAT(error("org/name@evil"), Contains("has no revision evil"));

  // A name that cannot be an id is a missing folder; no name leads out of the cache.
  for (const std::string path : {"/no/such/folder", "./none", "../org", "a/b/c", "org/..", "org/",
                                 "/name", "org/name@", "org/name@../x", "org/name@/abc"}) {
    INFO(path);
    CHECK_THAT(error(path), Contains("no such folder"));
  }
}

}  // namespace
}  // namespace baton
