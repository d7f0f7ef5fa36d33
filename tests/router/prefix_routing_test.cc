// Prompts go to the worker with their beginning when its predicted time is the shortest. Workers
// tell which pages they have; what the router knows of it is only a prediction.
#include <catch2/catch.hpp>

#include <numeric>
#include <set>

#include "tests/support/cached_pages.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr Incarnation kDecode = 1, kFirst = 11, kSecond = 12;

struct PrefixRoutingFixture : RouterHarness {  // two prefill workers and a decode worker
  explicit PrefixRoutingFixture(int relay_min_tokens = 0, bool reuses_kv = true)
      : RouterHarness(RouterOptions{.local = relay_min_tokens == 0,
                                    .relay = {.min_tokens = relay_min_tokens}}) {
    JoinReusing(kDecode, Role::kDecode, reuses_kv);
    JoinReusing(kFirst, Role::kPrefill, reuses_kv);
    JoinReusing(kSecond, Role::kPrefill, reuses_kv);
    for (const Incarnation worker : {kFirst, kSecond})
      REQUIRE(Report(worker, {MeasuredLoad(10'000)}).ok());
  }
  void JoinReusing(Incarnation id, Role role, bool reuses_kv) {
    WorkerAnnounce announce = Announce(id, role);
    announce.reuses_kv = reuses_kv;
    told.erase(id);
    if (reuses_kv) reuse.insert(id);
    REQUIRE(Report(id, {announce}).ok());
    if (reuses_kv) TellPages(id, {.restart = true});
  }
  void TellPages(Incarnation worker, CachedPages pages) {
    pages.number = ++numbers[worker];
    REQUIRE(Report(worker, {std::move(pages)}).ok());
  }
  // The worker has computed these tokens: all their whole pages are there.
  void TellComputed(Incarnation worker, const std::vector<int32_t>& computed, uint64_t salt) {
    if (!reuse.contains(worker)) return;
    CachedPages pages;
    for (const PageName& name : PageNames(TestKey(), computed, 16, salt))
      if (told[worker].insert(name).second) pages.entered.push_back(name);
    TellPages(worker, std::move(pages));
  }
  // Runs a prompt of consecutive tokens to its only token. Returns its ranks, the tail last.
  std::vector<Incarnation> Run(int32_t n_prompt, int32_t reused_tokens = 0, int32_t from = 100,
                               bool is_scored = false, uint64_t salt = 0) {
    sent.clear();
    GenerateRequest submitted;
    for (int32_t i = 0; i < n_prompt; ++i) submitted.prompt.push_back(from + i);
    submitted.max_tokens = 1;
    submitted.prompt_logprobs = is_scored ? 0 : -1;
    submitted.cache_salt = salt;
    const RequestId id = Submit(std::move(submitted));
    PromptLogprobs scores{.request_id = id, .epoch = 1, .position = 1};
    scores.tokens.resize(is_scored ? n_prompt - 1 : 0, {.rank = 1});
    std::vector<Incarnation> ranks;
    const auto prefills = Sent<PrefillRequest>();
    // About as predicted.
    now += absl::Milliseconds(0.1) * (n_prompt - reused_tokens) /
           static_cast<int64_t>(prefills.size());
    for (const auto& [worker, request] : prefills) {
      ranks.insert(ranks.begin(), worker);
      TellComputed(worker, request.tokens, salt);
      if (!request.wants_first_token) {
        REQUIRE(Report(worker, {baton::Ended(id, true)}).ok());
        continue;
      }
      if (is_scored) REQUIRE(Report(worker, {scores}).ok());
      const PromptComputed computed{.request_id = id, .epoch = 1, .reused_tokens = reused_tokens};
      REQUIRE(Report(worker, {computed, Token(id, n_prompt, 7), baton::Ended(id, true)}).ok());
    }
    CHECK(End(id).timeline.reused_tokens == reused_tokens);
    predicted = End(id).timeline.predicted;
    return ranks;
  }

  absl::Duration predicted{};  // of the last run
  std::set<Incarnation> reuse;
  std::map<Incarnation, uint64_t> numbers;
  std::map<Incarnation, std::set<PageName>> told;
};

TEST_CASE("where a prompt is cached under one salt is no hint for another") {
  // The worker of the second prompt: where it was computed first, and otherwise where any unknown
  // prompt goes.
  const auto second = [](int32_t from, uint64_t salt) {
    PrefixRoutingFixture r;
    const std::vector<Incarnation> first = r.Run(500, 0, 100, false, 1);
    return r.Run(600, 0, from, false, salt) == first;
  };
  CHECK(second(100, 1));
  CHECK_FALSE(second(5000, 1));
  CHECK_FALSE(second(100, 2));
  CHECK_FALSE(second(100, 0));
}

TEST_CASE("a prompt goes to the worker that has computed its beginning") {
  PrefixRoutingFixture r;
  const std::vector<Incarnation> first = r.Run(500);
  REQUIRE(first.size() == 1);
  for (const int32_t n_prompt : {600, 700, 500, 1000})
    CHECK(r.Run(n_prompt, n_prompt - 20) == first);  // otherwise workers would alternate
}

TEST_CASE("a next prompt is predicted without what its worker has behind whole pages") {
  PrefixRoutingFixture r;
  r.Run(500);  // 31 pages and 4 tokens
  CHECK(absl::ToDoubleMilliseconds(r.predicted) == Approx(50));
  r.Run(508, 500);
  CHECK(absl::ToDoubleMilliseconds(r.predicted) == Approx(0.8));
}

TEST_CASE("a prompt that is scored reuses nothing, which is no sign that nothing is cached") {
  PrefixRoutingFixture r;
  const std::vector<Incarnation> first = r.Run(500);
  for (int i = 0; i < 3; ++i) r.Run(500, 0, 100, true);
  CHECK(r.router.View().prefill_workers == 2);  // none was cut off
  for (const int32_t n_prompt : {600, 700}) CHECK(r.Run(n_prompt, n_prompt - 20) == first);
}

TEST_CASE("not if the other one is sooner: what is cached is a part of the prediction") {
  PrefixRoutingFixture r;
  const std::vector<Incarnation> first = r.Run(500);
  REQUIRE(r.Report(first.front(), {MeasuredLoad(100)}).ok());
  CHECK(r.Run(520) != first);  // 20 tokens take this worker 200 ms, 520 take the other one 52 ms
}

TEST_CASE("a worker that reuses nothing, or is gone, is not waited for") {
  PrefixRoutingFixture none(0, false);
  const std::vector<Incarnation> first = none.Run(500);
  CHECK(none.Run(500) != first);  // the workers alternate

  PrefixRoutingFixture r;
  const std::vector<Incarnation> computed = r.Run(500);
  r.Lose(computed.front());
  const std::vector<Incarnation> other = r.Run(500);
  CHECK(other != computed);
  r.JoinReusing(computed.front(), Role::kPrefill, true);  // the new worker has an empty pool
  CHECK(r.Run(500, 480) == other);
}

TEST_CASE("no relay where one worker has most of the prompt; a relay's ranks have it afterwards") {
  PrefixRoutingFixture r(64);
  const std::vector<Incarnation> ranks = r.Run(1024);
  REQUIRE(ranks.size() == 2);
  CHECK(r.Run(1060, 1008) == std::vector<Incarnation>{ranks.back()});  // the tail has all of it
  CHECK(r.Run(1500, 1008).size() == 1);  // 1008 tokens are cached; one worker computes the rest
  // The head has its own slice, and no worker has the end of a longer prompt.
  PrefixRoutingFixture other(64);
  REQUIRE(other.Run(300).size() == 2);
  CHECK(other.Run(2000).size() == 2);
}

TEST_CASE("a relay shares what its first rank does not have") {
  PrefixRoutingFixture r(64);
  REQUIRE(r.Run(1000) == std::vector<Incarnation>{kSecond, kFirst});  // the first has 496 tokens
  r.sent.clear();
  const RequestId id = r.Submit(1900, 1);
  const auto prefills = r.Sent<PrefillRequest>();
  REQUIRE(prefills.size() == 2);
  CHECK(prefills[1].first == kSecond);
  const auto head_tokens = static_cast<int32_t>(prefills[1].second.tokens.size());
  CHECK(head_tokens == Approx(496 + (1900 - 496) / 2).margin(16));
  CHECK(InflowTokens(prefills[0].second) == head_tokens);
  r.Cancel(id);
  const Timeline timeline = r.End(id).timeline;
  CHECK(timeline.slices == std::vector<int32_t>{head_tokens - 496, 1900 - head_tokens});
  CHECK(absl::ToDoubleMilliseconds(timeline.predicted) == Approx(70.2).margin(2));
}

TEST_CASE("what a worker has lost is not hoped for") {
  for (const bool loses : {false, true}) {
    PrefixRoutingFixture r;
    REQUIRE(r.Report(kSecond, {MeasuredLoad(100)}).ok());
    REQUIRE(r.Run(500, 0, 0).front() == kFirst);
    REQUIRE(r.Run(500, 0, 1000).front() == kFirst);
    std::vector<int32_t> lost(500);
    std::iota(lost.begin(), lost.end(), 0);
    if (loses) r.TellPages(kFirst, {.lost = PageNames(TestKey(), lost, 16)});
    REQUIRE(r.Report(kSecond, {MeasuredLoad(20'000)}).ok());
    CHECK(r.Run(500, loses ? 0 : 496, 0).front() == (loses ? kSecond : kFirst));
    CHECK(r.Run(500, 496, 1000).front() == kFirst);
  }
}

TEST_CASE("after a gap a worker is asked, once, and hoped for again when it has told all anew") {
  PrefixRoutingFixture r;
  const std::vector<Incarnation> first = r.Run(500);
  const std::set<PageName> names = r.told[first.front()];
  ++r.numbers[first.front()];
  r.sent.clear();
  r.TellPages(first.front(), {});
  r.TellPages(first.front(), {});
  REQUIRE(r.Sent<baton::TellPages>().size() == 1);
  CHECK(r.Sent<baton::TellPages>().front().first == first.front());
  CHECK(r.router.prefixes().PagesOf(first.front()).empty());
  r.TellPages(first.front(), {.restart = true, .entered = {names.begin(), names.end()}});
  CHECK(r.router.prefixes().PagesOf(first.front()).size() == names.size());
  for (int i = 0; i < 3; ++i) CHECK(r.Run(600, 496) == first);
}

TEST_CASE("a request that is dispatched anew goes where its prompt and its answer are") {
  PrefixRoutingFixture r;
  const RequestId id = r.Submit(500, 100);
  const Incarnation prefill = r.LastPrefillWorker();
  const Incarnation other = prefill == kFirst ? kSecond : kFirst;
  REQUIRE(r.Report(prefill, {Token(id, 500, 1), baton::Ended(id, true)}).ok());
  std::vector<int32_t> tokens = r.LastPrefill().tokens;
  for (int32_t position = 500; position < 540; ++position) {
    if (position > 500) REQUIRE(r.Report(kDecode, {Token(id, position, 1)}).ok());
    tokens.push_back(1);
  }
  r.TellComputed(other, tokens, 0);  // all 33 pages; the worker that computed has none of them
  REQUIRE(r.Report(prefill, {MeasuredLoad(100)}).ok());
  REQUIRE(r.Report(kDecode, {baton::Ended(id, false, EndReason::kPreempted)}).ok());
  CHECK(r.LastPrefillWorker() == other);
  CHECK(r.LastPrefill().tokens == tokens);
  r.Cancel(id);
  // 12 of 540 tokens were to be computed.
  CHECK(r.End(id).timeline.predicted < absl::Milliseconds(5));
}

TEST_CASE("a wrong hint costs time, no more") {
  PrefixRoutingFixture r(64);
  const std::vector<Incarnation> ranks = r.Run(1024);
  for (int i = 0; i < 3; ++i) {
    const RequestId id = r.Submit(1024, 1);
    const Incarnation worker = r.LastPrefillWorker();
    CHECK(worker == ranks.back());
    r.now += absl::Milliseconds(100);  // all tokens were computed, although 1 ms was predicted
    REQUIRE(r.Report(worker, {PromptComputed{.request_id = id, .epoch = 1}, Token(id, 1024, 7),
                              Ended(id, true)})
                .ok());
    CHECK(r.End(id).timeline.predicted < absl::Milliseconds(10));
  }
}

}  // namespace
}  // namespace baton
