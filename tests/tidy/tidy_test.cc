// Rules of the tree that a compiler does not check: floors, fenced headers, names, lengths, and
// that every test and source file is built. A rule that fails prints each offending place.

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <sstream>

#include "tests/tidy/source_tree.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
const std::string kRoot = BATON_SOURCE_DIR;

// What a room may include besides itself (docs/ARCHITECTURE.md, rooms and floors).
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"common", {}},
    {"proto", {"common"}},
    {"text", {"common"}},
    {"engine", {"common"}},
    {"kvtransfer", {"common"}},
    {"planner", {"common"}},
    {"router", {"common", "proto", "planner"}},
    {"prefill_worker", {"common", "proto", "engine", "kvtransfer", "planner"}},
    {"decode_worker", {"common", "proto", "engine", "kvtransfer", "text"}},
    {"worker",
     {"common", "proto", "engine", "kvtransfer", "planner", "prefill_worker", "decode_worker"}},
    {"bench",
     {"common", "proto", "engine", "kvtransfer", "planner", "prefill_worker", "decode_worker",
      "router", "worker"}},
    {"server",
     {"common", "proto", "text", "engine", "kvtransfer", "planner", "router", "prefill_worker",
      "decode_worker", "worker", "bench"}},
};

// The rooms of the product: all but bench.
std::vector<std::string> ProductRooms() {
  std::vector<std::string> rooms;
  for (const auto& [room, floor] : kMayInclude) {
    if (room != "bench") rooms.push_back(room);
  }
  return rooms;
}

std::vector<std::string> With(std::vector<std::string> rooms, std::vector<std::string> more) {
  rooms.insert(rooms.end(), more.begin(), more.end());
  return rooms;
}

// Every violation on its own line, so that one run shows all of them.
std::string Joined(const std::vector<std::string>& complaints) {
  std::ostringstream out;
  for (const std::string& complaint : complaints) out << "\n  " << complaint;
  return out.str();
}

bool IsServiceOrClient(const SourceFile& file) {
  const std::string stem = fs::path(file.path).stem().string();
  return stem.ends_with("_service") || stem.ends_with("_client");
}

TEST_CASE("includes go strictly downwards") {
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench"}))) {
    const std::string room = file.Room();
    const auto allowed = kMayInclude.find(room);
    if (allowed == kMayInclude.end()) {
      bad.push_back(file.path + ": room '" + room + "' has no floor in kMayInclude");
      continue;
    }
    for (const std::string& include : file.Includes()) {
      const std::string other = include.substr(0, include.find('/'));
      const bool is_ours = kMayInclude.contains(other) || other == "tests";
      if (is_ours && other != room && !allowed->second.contains(other)) {
        bad.push_back(file.path + " includes " + include);
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("third-party headers stay behind their fences") {
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench"}))) {
    for (const std::string& include : file.Includes()) {
      const auto fence = [&](const char* prefix, bool allowed) {
        if (include.starts_with(prefix) && !allowed) {
          bad.push_back(file.path + " includes " + include);
        }
      };
      const bool is_proto = file.Room() == "proto";
      fence("ucp/", file.name().starts_with("ucx_"));
      fence("ucs/", file.name().starts_with("ucx_"));
      fence("grpcpp/", is_proto || IsServiceOrClient(file));
      fence("grpc/", is_proto || IsServiceOrClient(file));
      fence("boost/asio", file.Room() == "server");
      fence("boost/beast", file.Room() == "server");
      fence("yaml-cpp/",
            file.path == "common/settings.cc" || file.path == "planner/partition_table.cc");
      fence("prometheus/", file.path.starts_with("common/metrics"));
      fence("cuda", file.path.starts_with("engine/cuda/"));
      if (file.IsHeader() && include.ends_with(".pb.h")) {
        bad.push_back(file.path + ": no generated header in our headers: " + include);
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("files are named by the noun they own") {
  const std::set<std::string> empty_nouns = {"util", "utils", "helper",       "helpers", "manager",
                                             "impl", "misc",  "common_types", "stuff",   "base"};
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    const std::string stem = fs::path(file.path).stem().string();
    for (const std::string& noun : empty_nouns) {
      if (stem == noun || stem.ends_with("_" + noun)) bad.push_back(file.path);
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("no file is longer than 800 lines") {  // the guide is 300 to 500
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    if (file.lines.size() > 800) {
      bad.push_back(file.path + ": " + std::to_string(file.lines.size()) + " lines");
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("every header is guarded and every source and test file is built") {
  std::map<std::string, std::string> cmake_texts;
  for (const std::string& folder : With(ProductRooms(), {"bench", "tests"})) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(kRoot) / folder)) {
      if (entry.path().filename() != "CMakeLists.txt") continue;
      cmake_texts[entry.path().parent_path().generic_string()] = ReadText(entry.path());
    }
  }
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    if (file.IsHeader() && !file.path.starts_with("text/ffi/")) {
      bool guarded = false;
      for (const std::string& line : file.lines) guarded = guarded || line == "#pragma once";
      if (!guarded) bad.push_back(file.path + ": no #pragma once");
    }
    if (!file.path.ends_with(".cc")) continue;
    // The nearest CMakeLists.txt at or above the file's folder names it by relative path.
    fs::path folder = (fs::path(kRoot) / file.path).parent_path();
    while (!cmake_texts.contains(folder.generic_string()) && folder != fs::path(kRoot)) {
      folder = folder.parent_path();
    }
    const auto text = cmake_texts.find(folder.generic_string());
    const std::string relative = fs::relative(fs::path(kRoot) / file.path, folder).generic_string();
    if (text == cmake_texts.end() || text->second.find(relative) == std::string::npos) {
      bad.push_back(file.path + ": in no CMakeLists.txt");
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("no environment variables, unfinished marks or sleeping polls in the product") {
  // Written in two parts so that this file does not contain what it forbids.
  const std::vector<std::string> everywhere = {std::string("TO") + "DO", std::string("FIX") + "ME",
                                               std::string("XX") + "X:"};
  const std::vector<std::string> in_product = {"getenv",    "setenv",  "putenv",
                                               "sleep_for", "usleep(", "absl::SleepFor"};
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const auto forbid = [&](const std::string& word) {
        if (file.lines[i].find(word) != std::string::npos) {
          bad.push_back(file.path + ":" + std::to_string(i + 1) + ": " + word);
        }
      };
      for (const std::string& word : everywhere) forbid(word);
      if (file.Room() != "bench" && file.Room() != "tests") {
        for (const std::string& word : in_product) forbid(word);
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("deadlines and durations go by the clock that nobody sets") {
  // Who wants the date: log lines, "created" fields, and templates that show the day.
  const std::set<std::string> dates = {"common/log.cc", "server/api/api_front.cc",
                                       "server/api/served_model.cc"};
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, ProductRooms())) {
    if (dates.contains(file.path)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i)
      for (const char* clock : {"absl::Now(", "system_clock::now"})
        if (file.lines[i].find(clock) != std::string::npos)
          bad.push_back(file.path + ":" + std::to_string(i + 1) + ": " + clock);
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("locks and threads appear only where threads are born or meet") {
  // The list is part of the design: a new entry needs a reason in docs/ARCHITECTURE.md.
  std::vector<std::string> bad;
  const std::set<std::string> pure_rooms = {"router", "prefill_worker", "decode_worker", "planner"};
  for (const SourceFile& file : ReadTree(kRoot, ProductRooms())) {
    if (!pure_rooms.contains(file.Room())) continue;
    for (const std::string& include : file.Includes()) {
      for (const char* header : {"thread", "mutex", "atomic", "condition_variable", "chrono"}) {
        if (include == header) bad.push_back(file.path + " includes <" + include + ">");
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("what a newcomer needs is there") {
  for (const char* path : {"README.md", "docs/ARCHITECTURE.md", "scripts/demo.sh",
                           "scripts/test.sh", ".ci/run", "LICENSE"}) {
    INFO(path);
    CHECK(fs::exists(fs::path(kRoot) / path));
  }
}

}  // namespace
}  // namespace baton
