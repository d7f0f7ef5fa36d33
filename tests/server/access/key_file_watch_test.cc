// The file of keys while it changes: what is good is taken, what is not leaves the keys as they
// were.
#include "server/access/key_file_watch.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/log.h"
#include "tests/server/http/loop_thread.h"
#include "tests/support/temp_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

struct Watched : LoopThread {
  Watched() {
    SetLog(LogLevel::kError, "test");
    Write("first");
    keys.emplace(*ReadKeyFile(path));
    watch.emplace(&loop, path, &*keys);
    Start();
  }
  ~Watched() { Stop(); }
  // As an editor does it: a new file in the old one's place.
  void Write(const std::string& key) {
    WriteText("app " + KeyDigest::Of(key).Hex() + " t admin\n");
  }
  void WriteText(const std::string& text, mode_t mode = 0600) {
    const std::string fresh = path + ".new";
    std::ofstream(fresh) << text;
    REQUIRE(::chmod(fresh.c_str(), mode) == 0);
    fs::rename(fresh, path);
  }
  bool Knows(const std::string& key) {
    return On([&] { return keys->Check({.api_key = key}, Scope::kAdmin).holder != nullptr; });
  }
  const TempFolder folder;
  const std::string path = folder.file("keys");
  std::optional<ApiKeys> keys;
  std::optional<KeyFileWatch> watch;
};

TEST_CASE("a changed file is read by itself, in place or replaced") {
  Watched watched;
  CHECK(watched.Knows("first"));
  watched.Write("second");
  CHECK(watched.WaitFor(
      [&] { return watched.keys->Check({.api_key = "second"}, {}).holder != nullptr; }));
  CHECK_FALSE(watched.Knows("first"));
  std::ofstream(watched.path, std::ios::app)
      << "more " << KeyDigest::Of("third").Hex() << " t admin\n";
  CHECK(watched.WaitFor([&] { return watched.keys->size() == 2; }));
  CHECK(watched.Knows("second"));
  CHECK(watched.Knows("third"));
}

TEST_CASE("a file that is wrong, empty, open to all or gone leaves the keys as they were") {
  Watched watched;
  for (const auto& [text, mode] : std::vector<std::pair<std::string, mode_t>>{
           {"garbage\n", 0600},
           {"", 0600},
           {"app " + KeyDigest::Of("x").Hex() + " t admin\n", 0644}}) {
    watched.WriteText(text, mode);
    watched.On([&] { watched.watch->Read(); });
    CHECK(watched.Knows("first"));
    CHECK_FALSE(watched.Knows("x"));
  }
  fs::remove(watched.path);
  watched.On([&] { watched.watch->Read(); });
  CHECK(watched.Knows("first"));
  watched.Write("second");
  CHECK(watched.WaitFor(
      [&] { return watched.keys->Check({.api_key = "second"}, {}).holder != nullptr; }));
}

TEST_CASE("a request to read is granted at once") {
  Watched watched;
  watched.On([&] {
    watched.Write("second");
    watched.watch->Read();
  });
  CHECK(watched.Knows("second"));
}

}  // namespace
}  // namespace baton
