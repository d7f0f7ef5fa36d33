// Pages and citations: every link resolves, every page is reachable from README, and comments cite
// only pages of the repository.

#include <catch2/catch.hpp>
#include <regex>
#include <set>

#include "tests/tidy/rooms.h"
#include "tests/tidy/source_tree.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Pages() {
  std::vector<std::string> pages = {"README.md"};
  for (const auto& entry : fs::directory_iterator(fs::path(kRoot) / "docs"))
    if (entry.path().extension() == ".md")
      pages.push_back("docs/" + entry.path().filename().string());
  return pages;
}

// Returns the targets of [text](target) and src="target" on a page, without web addresses.
std::vector<std::string> Links(const std::string& page) {
  static const std::regex pattern(R"re(\]\(([^)\s]+)\)|(?:src|href)="([^"]+)")re");
  const std::string text = ReadText(fs::path(kRoot) / page);
  std::vector<std::string> links;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const std::string target = (*it)[1].matched ? (*it)[1].str() : (*it)[2].str();
    if (!target.starts_with("http") && !target.starts_with("mailto:")) links.push_back(target);
  }
  return links;
}

// Returns the anchor of a heading in a rendered page.
std::string Anchor(const std::string& heading) {
  std::string anchor;
  for (const char c : heading.substr(heading.find_first_not_of("# "))) {
    if (std::isalnum(c) != 0 || c == '-' || c == '_') anchor += static_cast<char>(std::tolower(c));
    if (c == ' ') anchor += '-';
  }
  return anchor;
}

std::set<std::string> Anchors(const std::string& page) {
  std::set<std::string> anchors;
  std::istringstream lines(ReadText(fs::path(kRoot) / page));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("#")) anchors.insert(Anchor(line));
  return anchors;
}

TEST_CASE("links of the pages resolve, and every page is linked") {
  std::vector<std::string> bad;
  std::set<std::string> linked = {"README.md"};
  for (const std::string& page : Pages()) {
    for (const std::string& link : Links(page)) {
      const size_t hash = link.find('#');
      const std::string file = link.substr(0, hash);
      const std::string path =
          file.empty() ? page
                       : (fs::path(page).parent_path() / file).lexically_normal().generic_string();
      if (!fs::exists(fs::path(kRoot) / path)) {
        bad.push_back(page + " links " + link);
      } else if (hash != std::string::npos && path.ends_with(".md") &&
                 !Anchors(path).contains(link.substr(hash + 1))) {
        bad.push_back(page + " links " + link + ": no such heading");
      }
      if (path != page) linked.insert(path);
    }
  }
  for (const std::string& page : Pages())
    if (!linked.contains(page)) bad.push_back(page + " is linked from no other page");
  INFO(Joined(bad));
  CHECK(bad.empty());
}

TEST_CASE("comments cite pages that are there") {
  // docs/NAME.md, and words that name a document without a path.
  static const std::regex page(R"(docs/[A-Z_]+\.md)");
  static const std::regex absent(
      R"(\b(engine|relay|transfer|scheduling|reliability|api|kv|numerics) reference\b|DESIGN\.md)"
      R"(|\b(engine|relay-prefill|kv-transfer|scheduling|reliability|api|codebases)\.md\b)");
  std::vector<std::string> bad;
  for (const SourceFile& file :
       ReadTree(kRoot, With(ProductRooms(), {"bench", "tests", "scripts", "cmake"}))) {
    if (file.path.starts_with("tests/tidy/")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      // Most lines cite nothing, and regular expressions are slow.
      if (line.find(".md") == std::string::npos && line.find(" reference") == std::string::npos)
        continue;
      const std::string place = file.path + ":" + std::to_string(i + 1) + ": ";
      for (std::sregex_iterator it(line.begin(), line.end(), page), end; it != end; ++it)
        if (!fs::exists(fs::path(kRoot) / it->str())) bad.push_back(place + it->str());
      std::smatch found;
      if (std::regex_search(line, found, absent)) bad.push_back(place + found.str());
    }
  }
  INFO(Joined(bad));
  CHECK(bad.empty());
}

}  // namespace
}  // namespace baton
