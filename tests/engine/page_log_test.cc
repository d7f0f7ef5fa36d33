// The log against a router that believes it: whatever is told in whatever pieces, the router ends
// with the pages that are there, and never has more than the pool.
#include "engine/kv/page_log.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>

namespace baton {
namespace {

constexpr size_t kPoolPages = 5000;
constexpr RouterId kRouter = 7;

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
    log.Restart(kRouter);
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
      if (random() % 50 == 0) log.Restart(kRouter);
      if (random() % 3 == 0 && !log.is_told(kRouter)) router.On(log.Take(kRouter));
    }
    while (!log.is_told(kRouter)) router.On(log.Take(kRouter));
    CHECK(router.pages == std::set<PageName>(there.begin(), there.end()));
  }
}

TEST_CASE("what came and went before anybody was told is not told") {
  PageLog log;
  log.Restart(kRouter);
  CHECK(log.Take(kRouter).restart);
  CHECK(log.is_told(kRouter));
  log.Enter(Name(1));
  log.Lose(Name(1));
  CHECK(log.is_told(kRouter));
  log.Enter(Name(1));
  log.Enter(Name(1));  // another page of the pool with the same tokens
  const CachedPages told = log.Take(kRouter);
  CHECK(told.number == 2);
  CHECK_FALSE(told.restart);
  CHECK(told.entered == std::vector<PageName>{Name(1)});
  log.Lose(Name(1));
  CHECK(log.is_told(kRouter));
  log.Lose(Name(1));
  log.Enter(Name(1));
  CHECK(log.is_told(kRouter));
  log.Lose(Name(1));
  CHECK(log.Take(kRouter).lost == std::vector<PageName>{Name(1)});
}

TEST_CASE("a new beginning tells all that is there, also if that is nothing") {
  PageLog log;
  log.Restart(kRouter);
  CHECK(log.Take(kRouter).restart);
  for (uint64_t n = 0; n < CachedPages::kMaxNames + 10; ++n) log.Enter(Name(n));
  while (!log.is_told(kRouter)) log.Take(kRouter);
  log.Lose(Name(3));
  log.Restart(kRouter);
  const CachedPages first = log.Take(kRouter), second = log.Take(kRouter);
  CHECK(first.restart);
  CHECK(first.lost.empty());
  CHECK(first.entered.size() == CachedPages::kMaxNames);
  CHECK_FALSE(second.restart);
  CHECK(second.entered.size() == 9);
  CHECK(log.is_told(kRouter));
}

TEST_CASE("each router is told everything, in its own time, until it leaves") {
  constexpr RouterId kLate = 8;
  PageLog log;
  log.Restart(kRouter);
  log.Enter(Name(1));
  Listener first, late;
  first.On(log.Take(kRouter));
  CHECK(log.is_told(kLate));  // it is not there
  log.Restart(kLate);
  log.Enter(Name(2));
  log.Lose(Name(1));
  CHECK_FALSE(log.is_told(kRouter));
  late.On(log.Take(kLate));
  CHECK(late.pages == std::set<PageName>{Name(2)});
  CHECK(log.is_told(kLate));
  log.Leave(kRouter);
  CHECK(log.is_told(kRouter));
  log.Lose(Name(2));
  late.On(log.Take(kLate));
  CHECK(late.pages.empty());
  log.Restart(kRouter);  // the numbers of its messages begin anew
  CHECK(log.Take(kRouter).number == 1);
}

}  // namespace baton
