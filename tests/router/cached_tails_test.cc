// Tails behind whole pages, which workers can copy, are remembered by the tokens themselves.
#include "router/cached_tails.h"

#include <algorithm>
#include <numeric>

#include "tests/support/cached_pages.h"

#include <catch2/catch.hpp>  // last

namespace baton {
namespace {

constexpr int32_t kPage = 16;
constexpr Incarnation kOne = 1, kTwo = 2;
const PageName kBeginning = PageName::Beginning(7, false);

std::vector<int32_t> Text(int n, int32_t first = 100) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<PageName> Names(const std::vector<int32_t>& tokens) {
  return PageNames(ClusterKey(), tokens, kPage, 7);
}

struct TailsFixture {
  void Enter(Incarnation worker, const std::vector<int32_t>& tokens) {
    const std::vector<PageName> names = Names(tokens);
    const auto whole = std::ssize(names) * kPage,
               first = std::min(std::ssize(tokens), ptrdiff_t{kPage});
    tails.Enter(worker, kBeginning, {tokens.begin(), tokens.begin() + first});
    if (!names.empty()) tails.Enter(worker, names.back(), {tokens.begin() + whole, tokens.end()});
  }
  std::vector<CachedPrefix> Find(const std::vector<int32_t>& tokens,
                                 const std::vector<CachedPrefix>& cached) const {
    return tails.Find(kBeginning, Names(tokens), tokens, cached, kPage);
  }
  CachedTails tails;
};

using Found = std::vector<CachedPrefix>;

TEST_CASE("the next turn finds the last page of the turn before, where that was decoded") {
  TailsFixture f;
  f.Enter(kOne, Text(42));  // two pages, and ten tokens
  const Found whole = {{kOne, 32}};
  CHECK(f.Find(Text(60), whole) == Found{{kOne, 10}});
  CHECK(f.Find(Text(38), whole) == Found{{kOne, 6}});
  // The worker has lost a page since, or another one has the same pages: nothing is known.
  CHECK(f.Find(Text(60), {{kOne, 16}}).empty());
  CHECK(f.Find(Text(60), {{kTwo, 32}}).empty());
  // Another text goes on behind the same pages.
  std::vector<int32_t> other = Text(60);
  other[35] = 1;
  CHECK(f.Find(other, whole) == Found{{kOne, 3}});
  other[33] = 1;  // less than an eighth of a page is not copied
  CHECK(f.Find(other, whole).empty());
  f.tails.Leave(kOne);
  CHECK(f.Find(Text(60), whole).empty());
}

TEST_CASE("prompts with one beginning share a part of their first page") {
  TailsFixture f;
  f.Enter(kOne, Text(40));
  f.Enter(kTwo, Text(9));
  std::vector<int32_t> other = Text(12);
  other[8] = 1;
  CHECK(f.Find(other, {}) == Found{{kOne, 8}, {kTwo, 8}});
  CHECK(f.Find(Text(12, 500), {}).empty());
  // At another salt there is nothing.
  CHECK(f.tails.Find(PageName::Beginning(8, false), {}, Text(12), {}, kPage).empty());
}

TEST_CASE("of each worker the newest texts of a place are remembered, and the newest of all") {
  TailsFixture f;
  for (int32_t i = 0; i < 6; ++i) f.Enter(kOne, Text(10, 100 * i));
  CHECK(f.Find(Text(10, 500), {}) == Found{{kOne, 10}});
  CHECK(f.Find(Text(10, 0), {}).empty());
  // Texts of others at the same place, such as behind a template that all prompts have, do not make
  // it forget.
  for (Incarnation worker = 100; worker < 110; ++worker) f.Enter(worker, Text(10, 900));
  CHECK(f.Find(Text(10, 500), {}) == Found{{kOne, 10}});
  for (int32_t i = 0; i < 2; ++i) f.Enter(kTwo, Text(10, 500));  // the same once more
  CHECK(f.Find(Text(10, 500), {}) == Found{{kOne, 10}, {kTwo, 10}});
  for (size_t i = 0; i < CachedTails::kMaxTails; ++i)
    f.tails.Enter(kTwo, PageName::Beginning(i + 100, false), Text(10));
  CHECK(f.Find(Text(10, 500), {}).empty());
}

TEST_CASE("a text that is entered again and again is remembered") {
  TailsFixture f;
  for (size_t i = 0; i < CachedTails::kMaxTails + 10; ++i) f.Enter(kOne, Text(10, 500));
  CHECK(f.Find(Text(10, 500), {}) == Found{{kOne, 10}});
}

}  // namespace
}  // namespace baton
