// Old names must not return: docs/NAMES.md lists them until the next release.

#include <catch2/catch.hpp>
#include <map>
#include <regex>

#include "tests/tidy/class_outline.h"
#include "tests/tidy/rooms.h"
#include "tests/tidy/source_tree.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// Returns old name to new name, the first of several, from the rows of the page's tables that are
// not patterns.
std::map<std::string, std::string> OldNames() {
  static const std::regex row(R"(^\| `([A-Za-z_0-9]+)` \| `([A-Za-z_0-9:]+)`.* \|$)");
  std::map<std::string, std::string> names;
  std::istringstream lines(ReadText(fs::path(kRoot) / "docs" / "NAMES.md"));
  std::smatch found;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, found, row)) names[found[1]] = found[2];
  return names;
}

// Returns the words of a text that identifiers could be, in order. A loop, because a regular
// expression takes seconds for all files.
std::vector<std::string> Words(const std::string& text) {
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    while (i < text.size() && is_part(text[i])) ++i;
    if (i == begin) {
      ++i;
    } else if (std::isdigit(static_cast<unsigned char>(text[begin])) == 0) {
      words.push_back(text.substr(begin, i - begin));
    }
  }
  return words;
}

TEST_CASE("no old name is left in the code") {
  const std::map<std::string, std::string> old_names = OldNames();
  REQUIRE(old_names.size() > 100);
  static const std::regex family(R"(^(kMost|kLeast)[A-Z]|^(most|least)_[a-z])");
  // Keys of stored files keep their names.
  const std::set<std::string> stored = {"least_linear"};
  std::set<std::string> good;
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    if (file.path.starts_with("tests/tidy/")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& name : Words(file.lines[i])) {
        if (good.contains(name)) continue;
        const auto old = old_names.find(name);
        const bool is_old =
            old != old_names.end() || (std::regex_search(name, family) && !stored.contains(name));
        if (!is_old) {
          good.insert(name);
          continue;
        }
        bad.push_back(file.path + ":" + std::to_string(i + 1) + ": " + name + " is now " +
                      (old == old_names.end() ? "a max or a min" : old->second));
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("an identifier names a bound min or max") {
  // Comments and texts may say "at most"; identifiers use the words of the field.
  static const std::regex bound(
      "^(at_)?(least|most)(_|$)|^k?(At)?(Least|Most)([A-Z]|$)|AtLeast|AtMost|(^|_)(LEAST|MOST)_");
  std::set<std::string> good;
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    for (const std::string& name : Words(outline::Plain(file))) {
      if (good.contains(name)) continue;
      if (std::regex_search(name, bound)) {
        bad.push_back(file.path + ": " + name);
      } else {
        good.insert(name);
      }
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("a comment begins with its subject or a verb") {
  // Openings that leave the reader to look for the noun above.
  static const std::regex opening(
      "^ *//[/!]? (Of|Those|Whom|Whose|Nobody|What|Who|So many|As many|The same) ");
  std::vector<std::string> bad;
  for (const SourceFile& file : ReadTree(kRoot, With(ProductRooms(), {"bench", "tests"}))) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const bool goes_on =
          i > 0 && file.lines[i - 1].find_first_not_of(' ') != std::string::npos &&
          file.lines[i - 1].compare(file.lines[i - 1].find_first_not_of(' '), 2, "//") == 0;
      if (!goes_on && std::regex_search(file.lines[i], opening))
        bad.push_back(file.path + ":" + std::to_string(i + 1) + ": " + file.lines[i]);
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

}  // namespace
}  // namespace baton
