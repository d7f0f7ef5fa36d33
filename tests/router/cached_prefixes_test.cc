// The index of all workers' pages: what it answers, and what a worker cannot tell.
#include "router/cached_prefixes.h"

#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "tests/support/cached_pages.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Catch::Contains;

constexpr Incarnation kFirst = 11, kSecond = 12, kThird = 13;
constexpr int32_t kPageTokens = 16, kPoolPages = 100;

std::vector<int32_t> Tokens(int n, int from = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

std::vector<PageName> PagesAt(int n_pages, int from = 0, uint64_t salt = 0, bool is_long = false) {
  return PageNames(TestKey(), Tokens(n_pages * kPageTokens, from), kPageTokens, salt, is_long);
}

struct ThreeCaches : CachedPrefixes {
  explicit ThreeCaches(size_t max_pages = kMaxPages) : CachedPrefixes(TestKey(), max_pages) {
    for (const Incarnation worker : {kThird, kFirst, kSecond}) Come(worker);
  }
  void Come(Incarnation worker) {
    Join({.incarnation = worker,
          .page_tokens = kPageTokens,
          .pages_total = kPoolPages,
          .reuses_kv = true,
          .short_range_tokens = 500});
    CHECK(Tell(worker, {.restart = true}) == "");
  }
  // The next message of the worker. Returns what is said to it: "", "ask" or the error.
  std::string Tell(Incarnation worker, CachedPages told) {
    told.number = ++numbers[worker];
    const absl::StatusOr<bool> lacks = OnPages(worker, told);
    if (!lacks.ok()) {
      CHECK(lacks.status().code() == absl::StatusCode::kInvalidArgument);
      return std::string(lacks.status().message());
    }
    return *lacks ? "ask" : "";
  }
  std::vector<CachedPrefix> Found(int n_tokens, int from = 0) const {
    return Find(NamesOf(Tokens(n_tokens, from), n_tokens + 1, 0));
  }
  using Prefixes = std::vector<CachedPrefix>;
  std::map<Incarnation, uint64_t> numbers;
};

}  // namespace

TEST_CASE("one walk finds what each worker has of a prompt, without its last token") {
  ThreeCaches c;
  CHECK(c.Found(200).empty());
  CHECK(c.Tell(kFirst, {.entered = PagesAt(5)}) == "");
  CHECK(c.Tell(kSecond, {.entered = PagesAt(3)}) == "");
  CHECK(c.Tell(kThird, {.entered = PagesAt(5, 1000)}) == "");
  CHECK(c.Found(200) == ThreeCaches::Prefixes{{kFirst, 80}, {kSecond, 48}});
  CHECK(c.Found(81) == ThreeCaches::Prefixes{{kFirst, 80}, {kSecond, 48}});
  CHECK(c.Found(80) == ThreeCaches::Prefixes{{kFirst, 64}, {kSecond, 48}});
  CHECK(c.Found(17) == ThreeCaches::Prefixes{{kFirst, 16}, {kSecond, 16}});
  CHECK(c.Found(16).empty());
  CHECK(c.Found(33, 1000) == ThreeCaches::Prefixes{{kThird, 32}});
  CHECK(c.Found(33, 1).empty());
  CHECK(c.NamesOf({}, 1, 0).empty());
  // Names may be made in pieces, as the text grows.
  std::vector<PageName> names = c.NamesOf(Tokens(40), 1, 0);
  const std::vector<int32_t> text = Tokens(100);
  c.Extend(std::span(text).subspan(names.size() * 16), 1, 0, &names);
  CHECK(names == c.NamesOf(text, 1, 0));
  CHECK(c.Find({}).empty());
  // A page in the middle is lost: what follows it is not found.
  CHECK(c.Tell(kFirst, {.lost = {PagesAt(5)[1]}}) == "");
  CHECK(c.Found(200) == ThreeCaches::Prefixes{{kFirst, 16}, {kSecond, 48}});
  CHECK(c.PagesOf(kFirst).size() == 4);
}

TEST_CASE("prompts of other salts, or of RoPE's other range, have nothing in common") {
  ThreeCaches c;
  CHECK(c.Tell(kFirst, {.entered = PagesAt(3, 0, 7)}) == "");
  CHECK(c.Tell(kSecond, {.entered = PagesAt(3, 0, 0, true)}) == "");
  const auto found = [&](int64_t max_total_tokens, uint64_t salt) {
    return c.Find(c.NamesOf(Tokens(100), max_total_tokens, salt));
  };
  CHECK(found(500, 7) == ThreeCaches::Prefixes{{kFirst, 48}});
  CHECK(found(501, 7).empty());
  CHECK(found(500, 0).empty());
  CHECK(found(501, 0) == ThreeCaches::Prefixes{{kSecond, 48}});
}

TEST_CASE("a worker that leaves and comes back has nothing, and one that reuses nothing neither") {
  ThreeCaches c;
  CHECK(c.Tell(kFirst, {.entered = PagesAt(3)}) == "");
  CHECK(c.Tell(kSecond, {.entered = PagesAt(3)}) == "");
  c.Leave(kFirst);
  CHECK(c.Found(100) == ThreeCaches::Prefixes{{kSecond, 48}});
  c.Come(kFirst);
  CHECK(c.Found(100) == ThreeCaches::Prefixes{{kSecond, 48}});
  CHECK(c.Tell(kFirst, {.entered = PagesAt(1)}) == "");
  CHECK(c.Found(100) == ThreeCaches::Prefixes{{kFirst, 16}, {kSecond, 48}});
  c.Join({.incarnation = 99, .page_tokens = kPageTokens, .pages_total = kPoolPages});
  CHECK(c.Tell(99, {.restart = true, .entered = PagesAt(3)}) == "");
  CHECK(c.PagesOf(99).empty());
}

TEST_CASE("after a gap nothing counts until the worker has begun anew") {
  ThreeCaches c;
  CHECK(c.Tell(kFirst, {.entered = PagesAt(3)}) == "");
  CHECK(c.Tell(kSecond, {.entered = PagesAt(2)}) == "");
  ++c.numbers[kFirst];
  CHECK(c.Tell(kFirst, {.entered = PagesAt(2, 1000)}) == "ask");
  CHECK(c.Found(100) == ThreeCaches::Prefixes{{kSecond, 32}});
  CHECK(c.Tell(kFirst, {.lost = PagesAt(9, 77)}) == "");  // asked already
  ++c.numbers[kFirst];                                    // perhaps the answer: asked again
  CHECK(c.Tell(kFirst, {.entered = PagesAt(2, 1000)}) == "ask");
  CHECK(c.Tell(kFirst, {.restart = true, .entered = PagesAt(1)}) == "");
  CHECK(c.Tell(kFirst, {.entered = {PagesAt(2)[1]}}) == "");
  CHECK(c.Found(100) == ThreeCaches::Prefixes{{kFirst, 32}, {kSecond, 32}});
  // A gap before a new beginning does not matter. Nor does the first number of a stream.
  c.numbers[kFirst] += 5;
  CHECK(c.Tell(kFirst, {.restart = true, .entered = PagesAt(4)}) == "");
  CHECK(c.Found(100) == ThreeCaches::Prefixes{{kFirst, 64}, {kSecond, 32}});
  c.Leave(kFirst);
  c.Come(kFirst);
  CHECK(c.Tell(kFirst, {.entered = PagesAt(4)}) == "");
  c.Leave(kFirst);
  c.Join({.incarnation = kFirst, .page_tokens = 16, .pages_total = 9, .reuses_kv = true});
  CHECK(c.Tell(kFirst, {.entered = PagesAt(4)}) == "ask");
}

TEST_CASE("what a worker cannot tell of its pages is refused by its name") {
  ThreeCaches c;
  REQUIRE(c.Tell(kFirst, {.entered = PagesAt(3)}) == "");
  SECTION("a number again") {
    c.numbers[kFirst] -= 1;
    CHECK_THAT(c.Tell(kFirst, {}), Contains("cached_pages.number is 2 after 2"));
  }
  SECTION("a number before") {
    c.numbers[kFirst] -= 2;
    CHECK_THAT(c.Tell(kFirst, {.restart = true}), Contains("cached_pages.number is 1 after 2"));
  }
  SECTION("a page lost that was not there") {
    CHECK_THAT(c.Tell(kFirst, {.lost = PagesAt(4)}), Contains("cached_pages.lost"));
  }
  SECTION("a page of another worker lost") {
    REQUIRE(c.Tell(kSecond, {.entered = PagesAt(4)}) == "");
    CHECK_THAT(c.Tell(kFirst, {.lost = {PagesAt(4)[3]}}), Contains("cached_pages.lost"));
  }
  SECTION("a page entered twice") {
    CHECK_THAT(c.Tell(kFirst, {.entered = {PagesAt(3)[2]}}), Contains("was there already"));
  }
  SECTION("more pages than the pool has") {
    CHECK(c.Tell(kFirst, {.entered = PagesAt(kPoolPages - 3, 5000)}) == "");
    CHECK_THAT(c.Tell(kFirst, {.entered = PagesAt(1, 9000)}), Contains("has 100"));
  }
}

TEST_CASE("pages beyond the bound are not remembered, and are lost without complaint") {
  ThreeCaches c(4);
  CHECK(c.Tell(kFirst, {.entered = PagesAt(6)}) == "");
  CHECK(c.Found(200) == ThreeCaches::Prefixes{{kFirst, 64}});
  CHECK(c.Tell(kSecond, {.entered = PagesAt(6)}) == "");  // what is there costs nothing more
  CHECK(c.Found(200) == ThreeCaches::Prefixes{{kFirst, 64}, {kSecond, 64}});
  CHECK(c.Tell(kFirst, {.lost = PagesAt(6)}) == "");
  CHECK(c.Found(200) == ThreeCaches::Prefixes{{kSecond, 64}});
  CHECK_THAT(c.Tell(kFirst, {.lost = PagesAt(1)}), Contains("did not have"));
}

TEST_CASE("whatever workers tell in turn, the index finds what a list of their pages would") {
  std::mt19937_64 random(3);
  const auto pick = [&random](uint64_t n) { return random() % n; };
  ThreeCaches c;
  std::map<Incarnation, std::set<PageName>> model;
  const std::vector<PageName> prompts[] = {PagesAt(8), PagesAt(8, 500), PagesAt(8, 900)};
  for (int turn = 0; turn < 5000; ++turn) {
    const Incarnation worker = kFirst + pick(3);
    std::set<PageName>& has = model[worker];
    CachedPages told{.restart = pick(50) == 0};
    if (told.restart) has.clear();
    for (uint64_t n = pick(6); n > 0; --n) {
      const PageName name = prompts[pick(3)][pick(8)];
      if (std::count(told.lost.begin(), told.lost.end(), name) > 0 ||
          std::count(told.entered.begin(), told.entered.end(), name) > 0)
        continue;
      (has.contains(name) ? told.lost : told.entered).push_back(name);
      if (!has.erase(name)) has.insert(name);
    }
    REQUIRE(c.Tell(worker, std::move(told)) == "");
    ThreeCaches::Prefixes expected;
    for (const auto& [each, pages] : model) {
      int32_t n = 0;
      while (n < 8 && pages.contains(prompts[0][static_cast<size_t>(n)])) ++n;
      if (n > 0) expected.push_back({.worker = each, .tokens = n * kPageTokens});
    }
    REQUIRE(c.Found(8 * kPageTokens + 1) == expected);
    REQUIRE(c.PagesOf(worker) == std::vector<PageName>(has.begin(), has.end()));
  }
}

}  // namespace baton
