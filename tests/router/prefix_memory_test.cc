#include "router/prefix_memory.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

namespace baton {
namespace {

std::vector<int32_t> Tokens(int n, int from = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

}  // namespace

TEST_CASE("a hash of each whole page, of all before it too, but not of the last token's page") {
  CHECK(PageHashes(Tokens(15), 16).empty());
  CHECK(PageHashes(Tokens(16), 16).empty());  // the last token is computed again
  CHECK(PageHashes(Tokens(17), 16).size() == 1);
  CHECK(PageHashes(Tokens(49), 16).size() == 3);
  std::vector<int32_t> other = Tokens(49);
  other[3] = 1000;
  const std::vector<uint64_t> a = PageHashes(Tokens(49), 16), b = PageHashes(other, 16);
  for (size_t page = 0; page < 3; ++page) CHECK(a[page] != b[page]);
  const std::vector<uint64_t> longer = PageHashes(Tokens(200), 16);
  const std::vector<uint64_t> salted = PageHashes(Tokens(200), 16, 1);
  const std::vector<uint64_t> otherwise = PageHashes(Tokens(200), 16, 2);
  for (const uint64_t page : salted) {
    CHECK(std::count(longer.begin(), longer.end(), page) == 0);
    CHECK(std::count(otherwise.begin(), otherwise.end(), page) == 0);
  }
  CHECK(std::equal(a.begin(), a.end(), longer.begin()));
}

TEST_CASE("what a worker has of a prompt is its longest beginning") {
  PrefixMemory memory(100);
  const std::vector<uint64_t> pages = PageHashes(Tokens(16 * 10 + 1), 16);
  CHECK(memory.Find(pages) == 0);
  memory.Add(std::span(pages).first(4));
  CHECK(memory.Find(pages) == 4);
  memory.Add(pages);
  CHECK(memory.Find(pages) == 10);
  CHECK(memory.Find(PageHashes(Tokens(161, 7), 16)) == 0);
  CHECK(memory.size() == 10);
}

TEST_CASE("what was used the longest ago is forgotten first, a prompt's end before its beginning") {
  PrefixMemory memory(10);
  const std::vector<uint64_t> first = PageHashes(Tokens(16 * 6 + 1), 16);
  const std::vector<uint64_t> second = PageHashes(Tokens(16 * 6 + 1, 1000), 16);
  memory.Add(first);
  memory.Add(second);
  CHECK(memory.size() == 10);
  CHECK(memory.Find(first) == 4);
  CHECK(memory.Find(second) == 6);
  memory.Add(std::span(first).first(4));
  memory.Add(PageHashes(Tokens(16 * 2 + 1, 2000), 16));
  CHECK(memory.Find(first) == 4);
  CHECK(memory.Find(second) == 4);
  memory.Add(PageHashes(Tokens(16 * 20 + 1, 3000), 16));  // more than the memory holds
  CHECK(memory.size() == 10);
  CHECK(memory.Find(first) == 0);
}

TEST_CASE("what a worker lacks it gave away after all that was used before") {
  PrefixMemory memory(100);
  const auto pages = [](int32_t from) { return PageHashes(Tokens(16 * 6 + 1, from), 16); };
  const std::vector<uint64_t> first = pages(0), second = pages(1000), third = pages(2000);
  for (const auto& prompt : {first, second, third}) memory.Add(prompt);
  memory.Lacks(second[4], memory.adds());
  CHECK(memory.Find(first) == 0);
  CHECK(memory.Find(second) == 4);
  CHECK(memory.Find(third) == 6);
  memory.Lacks(first[0], memory.adds());  // known
  CHECK(memory.size() == 10);
  // The prefix has been added again since the lookup.
  const uint64_t adds = memory.adds();
  memory.Add(second);
  memory.Lacks(second[4], adds);
  CHECK(memory.Find(second) == 6);
  CHECK(memory.Find(third) == 6);
}

TEST_CASE("a worker that keeps nothing is remembered with nothing") {
  PrefixMemory memory(0);
  memory.Add(PageHashes(Tokens(100), 16));
  CHECK(memory.size() == 0);
  CHECK(memory.Find(PageHashes(Tokens(100), 16)) == 0);
}

}  // namespace baton
