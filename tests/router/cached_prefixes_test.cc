// The expected contents of all prefix caches: who gets what by a prompt, and what a report takes
// away.
#include "router/prefix_memory.h"

#include <catch2/catch.hpp>

#include <numeric>

namespace baton {
namespace {

constexpr Incarnation kTail = 11, kHead = 12, kOther = 13;
const Plan kAlone{.slices = {{kTail, 81}}};

std::vector<uint64_t> Pages() {
  std::vector<int32_t> prompt(81);
  std::iota(prompt.begin(), prompt.end(), 0);
  return PageHashes(prompt, 16);  // five whole pages
}

struct ThreeCaches : CachedPrefixes {
  ThreeCaches() {
    for (const Incarnation worker : {kOther, kTail, kHead})
      Join({.incarnation = worker, .page_tokens = 16, .pages_total = 100, .reuses_kv = true});
  }
};

}  // namespace

TEST_CASE("workers that reuse nothing are expected to have nothing") {
  CachedPrefixes prefixes;
  prefixes.Join({.incarnation = kTail, .page_tokens = 16, .pages_total = 100});
  CHECK(prefixes.empty());
  prefixes.OnComputed(kAlone, Pages());
  prefixes.OnFound({.worker = kTail, .tokens = 80}, Pages(), 0);
  CHECK(prefixes.Find(Pages()).empty());
}

TEST_CASE("a worker has what it computed, and a rank what comes before its slice too") {
  ThreeCaches prefixes;
  CHECK_FALSE(prefixes.empty());
  CHECK(prefixes.Find(Pages()).empty());
  prefixes.OnComputed({.slices = {{kHead, 48}, {kTail, 81}}}, Pages());
  CHECK(prefixes.Find(Pages()) ==
        std::vector<CachedPrefix>{{.worker = kTail, .tokens = 80, .adds = 1},
                                  {.worker = kHead, .tokens = 48, .adds = 1}});
  prefixes.OnComputed({.slices = {{kOther, 81}}}, Pages());
  CHECK(prefixes.Find(Pages()).size() == 3);
}

TEST_CASE("a worker that found less than was hoped for has lost the rest") {
  ThreeCaches prefixes;
  prefixes.OnComputed(kAlone, Pages());
  const CachedPrefix hoped = prefixes.Find(Pages()).at(0);
  prefixes.OnFound(hoped, Pages(), 80);
  CHECK(prefixes.Find(Pages()).at(0) == hoped);
  prefixes.OnFound(hoped, Pages(), 32);
  CHECK(prefixes.Find(Pages()).at(0).tokens == 32);
  prefixes.OnComputed(kAlone, Pages());
  prefixes.OnFound(hoped, Pages(), 32);  // an old hope: the pages came back since
  CHECK(prefixes.Find(Pages()).at(0).tokens == 80);
}

TEST_CASE("a worker that leaves and comes back has nothing") {
  ThreeCaches prefixes;
  prefixes.OnComputed(kAlone, Pages());
  prefixes.Leave(kTail);
  CHECK(prefixes.Find(Pages()).empty());
  prefixes.Join({.incarnation = kTail, .page_tokens = 16, .pages_total = 100, .reuses_kv = true});
  CHECK(prefixes.Find(Pages()).empty());
  for (const Incarnation worker : {kTail, kHead, kOther}) prefixes.Leave(worker);
  CHECK(prefixes.empty());
}

}  // namespace baton
