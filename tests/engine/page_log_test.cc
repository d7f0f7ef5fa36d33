// The log against a router that believes it: whatever is told in whatever pieces, the router ends
// with the pages that are there, and never has more than the pool.
#include "engine/kv/page_log.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

namespace baton {
namespace {

constexpr size_t kPoolPages = 5000;

PageName Name(uint64_t n) { return {.high = n, .low = n * 0x9E3779B97F4A7C15}; }

struct Listener {
  void On(const CachedPages& told) {
    REQUIRE(told.number == ++number);
    REQUIRE(told.lost.size() + told.entered.size() <= CachedPages::kMaxNames);
    if (told.restart) pages.clear();
    for (const PageName& name : told.lost) REQUIRE(pages.erase(name) == 1);
    for (const PageName& name : told.entered) REQUIRE(pages.insert(name).second);
    REQUIRE(pages.size() <= kPoolPages);
  }
  uint64_t number = 0;
  std::set<PageName> pages;
};

}  // namespace

TEST_CASE("what is told in the end is what is there") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    PageLog log;
    Listener router;
    std::vector<PageName> there;  // with repetitions
    for (int turn = 0; turn < 300; ++turn) {
      for (uint64_t n = random() % 600; n > 0; --n) {
        if (there.size() < kPoolPages && random() % 2 == 0) {
          there.push_back(Name(random() % (2 * kPoolPages)));
          log.Enter(there.back());
        } else if (!there.empty()) {
          std::swap(there[random() % there.size()], there.back());
          log.Lose(there.back());
          there.pop_back();
        }
      }
      if (random() % 50 == 0) log.Restart();
      if (random() % 3 == 0 && !log.is_told()) router.On(log.Take());
    }
    while (!log.is_told()) router.On(log.Take());
    CHECK(router.pages == std::set<PageName>(there.begin(), there.end()));
  }
}

TEST_CASE("what came and went before anybody was told is not told") {
  PageLog log;
  CHECK(log.is_told());
  log.Enter(Name(1));
  log.Lose(Name(1));
  CHECK(log.is_told());
  log.Enter(Name(1));
  log.Enter(Name(1));  // another page of the pool with the same tokens
  const CachedPages told = log.Take();
  CHECK(told.number == 1);
  CHECK_FALSE(told.restart);
  CHECK(told.entered == std::vector<PageName>{Name(1)});
  log.Lose(Name(1));
  CHECK(log.is_told());
  log.Lose(Name(1));
  log.Enter(Name(1));
  CHECK(log.is_told());
  log.Lose(Name(1));
  CHECK(log.Take().lost == std::vector<PageName>{Name(1)});
}

TEST_CASE("a new beginning tells all that is there, also if that is nothing") {
  PageLog log;
  log.Restart();
  CHECK(log.Take().restart);
  for (uint64_t n = 0; n < CachedPages::kMaxNames + 10; ++n) log.Enter(Name(n));
  while (!log.is_told()) log.Take();
  log.Lose(Name(3));
  log.Restart();
  const CachedPages first = log.Take(), second = log.Take();
  CHECK(first.restart);
  CHECK(first.lost.empty());
  CHECK(first.entered.size() == CachedPages::kMaxNames);
  CHECK_FALSE(second.restart);
  CHECK(second.entered.size() == 9);
  CHECK(log.is_told());
}

}  // namespace baton
