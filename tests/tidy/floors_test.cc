// Rules for includes and folders: includes go down the floors, folders inside a room form no cycle,
// and the folders that a new reader opens first stay small.

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>

#include "tests/tidy/rooms.h"
#include "tests/tidy/source_tree.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::string FolderOf(const std::string& path) { return fs::path(path).parent_path().string(); }

TEST_CASE("includes go strictly downwards") {
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench"}))) {
    const std::string room = file.Room();
    for (const std::string& include : file.Includes()) {
      const std::string other = include.substr(0, include.find('/'));
      const bool is_ours = kMayInclude.contains(other) || other == "tests";
      if (is_ours && other != room && !kMayInclude.at(room).contains(other)) {
        bad.push_back(file.path + " includes " + include);
      }
      if (other == "bench" && room != "bench" && FolderOf(file.path) != "server/cli") {
        bad.push_back(file.path + " includes " + include + ": only server/cli sees bench");
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("an include names a file of the tree by its path from the root") {
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    for (const std::string& include : file.Includes()) {
      const std::string room = include.substr(0, include.find('/'));
      const bool is_ours = include.find('/') == std::string::npos
                               ? include.ends_with(".h") &&
                                     fs::exists(fs::path(kRoot) / FolderOf(file.path) / include)
                               : kMayInclude.contains(room) || room == "tests";
      const bool is_generated = include.ends_with(".pb.h");
      if (is_ours && !is_generated && !fs::exists(fs::path(kRoot) / include)) {
        bad.push_back(file.path + " includes " + include);
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

// Each folder with the folders that its files include.
using Arrows = std::map<std::string, std::set<std::string>>;

// Returns the folders of a cycle, in order; empty: no cycle.
std::vector<std::string> Circle(const Arrows& arrows) {
  std::vector<std::string> path, circle;
  std::set<std::string> done;
  const std::function<bool(const std::string&)> visit = [&](const std::string& folder) {
    const auto seen = std::find(path.begin(), path.end(), folder);
    if (seen != path.end()) {
      circle.assign(seen, path.end());
      return true;
    }
    if (!done.insert(folder).second) return false;
    path.push_back(folder);
    if (const auto found = arrows.find(folder); found != arrows.end())
      for (const std::string& next : found->second)
        if (visit(next)) return true;
    path.pop_back();
    return false;
  };
  for (const auto& [folder, targets] : arrows)
    if (visit(folder)) return circle;
  return {};
}

TEST_CASE("folders include each other in one direction only") {
  const std::vector<SourceFile> files = ReadTree(kRoot, With(ProductRooms(), {"bench"}));
  std::set<std::string> paths;
  for (const SourceFile& file : files) paths.insert(file.path);
  Arrows arrows;
  for (const SourceFile& file : files) {
    for (const std::string& include : file.Includes()) {
      const std::string from = FolderOf(file.path), to = FolderOf(include);
      if (paths.contains(include) && from != to) arrows[from].insert(to);
    }
  }
  CHECK(arrows.size() > 25);  // the sub-rooms were found
  INFO("circle:" << Joined(Circle(arrows)));
  CHECK(Circle(arrows).empty());

  CHECK(Circle({{"a", {"b"}}, {"b", {"c"}}, {"c", {"a"}}}).size() == 3);
  CHECK(Circle({{"a", {"b", "c"}}, {"b", {"c"}}}).empty());
}

TEST_CASE("the seam of the engine knows no machine, and its large rooms fit on a screen") {
  for (const SourceFile& file : ReadTree(kRoot, {"engine/step", "engine/model", "engine/kv",
                                                 "engine/checkpoint", "engine/sampling"})) {
    for (const std::string& include : file.Includes()) {
      INFO(file.path << " includes " << include);
      CHECK_FALSE(include.starts_with("engine/cpu/"));
    }
  }
  for (const char* room : {"engine", "server"}) {
    const auto entries = fs::directory_iterator(fs::path(kRoot) / room);
    INFO(room);
    CHECK(std::distance(fs::begin(entries), fs::end(entries)) <= 12);
  }
}

}  // namespace
}  // namespace baton
