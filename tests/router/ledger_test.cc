// The ledger alone: what an attempt takes at each worker, how it shrinks and grows, and that
// nothing is left when the attempt is over.
#include "router/ledger.h"

#include <catch2/catch.hpp>

#include <algorithm>

namespace baton {
namespace {

constexpr int32_t kPage = 16;
constexpr Incarnation kDecode = 1, kTail = 11, kHead = 12;
constexpr AttemptSpec kSpec{.n_prompt = 40, .max_tokens = 30};  // 3 pages, 5 with all tokens
const Plan kPlan{.slices = {{kTail, 40}}, .decode = kDecode};
const Plan kRelay{.slices = {{kHead, 32}, {kTail, 40}}, .decode = kDecode};

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

void Reserve(Ledger& ledger, RequestId request, const Plan& plan = kPlan) {
  ledger.Reserve(request, plan, kSpec, kPage, kNow);
}

}  // namespace

TEST_CASE("an attempt takes work at its prefill worker, a row and promised pages at the other") {
  Ledger ledger;
  Reserve(ledger, 1);
  CHECK(ledger.At(kTail).prompts.at(1).work.tokens == 40);
  CHECK_FALSE(ledger.At(kTail).prompts.at(1).is_slice);
  CHECK(ledger.At(kTail).held.rows == 0);
  CHECK(ledger.At(kDecode).prompts.empty());
  CHECK(ledger.At(kDecode).held.rows == 1);
  CHECK(ledger.At(kDecode).pages_held == 4);  // the prompt's and one to grow into
  CHECK(ledger.pages_held() == 4);
  ledger.Release(1, kPlan);
  CHECK(ledger.At(kTail).parts.empty());
  CHECK(ledger.At(kDecode).parts.empty());
  CHECK(ledger.At(kDecode).held.rows == 0);
  CHECK(ledger.pages_held() == 0);
  ledger.Release(1, kPlan);  // no effect
  CHECK(ledger.pages_held() == 0);
}

TEST_CASE("a row holds the pages promised, then those that its tokens fill") {
  Ledger ledger;
  Reserve(ledger, 1);
  const auto pages = [&](int32_t tokens_left) {
    ledger.OnTokensLeft(kDecode, 1, tokens_left);
    return ledger.At(kDecode).pages_held;
  };
  CHECK(pages(29) == 4);
  CHECK(pages(6) == 4);
  CHECK(pages(5) == 5);
  CHECK(ledger.At(kDecode).parts.at(1).held.tokens_left == 5);
  ledger.OnTokensLeft(kTail, 1, 5);  // no row there
  CHECK(ledger.pages_held() == 5);
  ledger.Release(1, kPlan);
  CHECK(ledger.pages_held() == 0);
}

TEST_CASE("a worker that does both has one part") {
  Ledger ledger;
  const Plan plan{.slices = {{kTail, 40}}, .decode = kTail};
  Reserve(ledger, 1, plan);
  REQUIRE(ledger.At(kTail).parts.size() == 1);
  CHECK(ledger.At(kTail).prompts.at(1).work.tokens == 40);
  CHECK(ledger.At(kTail).parts.at(1).decodes);
  ledger.OnPrefillComputed(kTail, 1);
  CHECK(ledger.At(kTail).prompts.empty());
  CHECK(ledger.At(kTail).held.rows == 1);
  ledger.Release(1, plan);
  CHECK(ledger.At(kTail).parts.empty());
  CHECK(ledger.pages_held() == 0);
}

TEST_CASE("what a worker has computed is taken from the prompts that go first") {
  Ledger ledger;
  const auto left = [&](RequestId request) { return ledger.At(kTail).prompts.at(request).left; };
  const auto told = [&](int64_t tokens, absl::Duration after = absl::Seconds(1)) {
    ledger.OnQueued(kTail, tokens, kNow + after);
  };
  Reserve(ledger, 1);
  ledger.Reserve(2, {.slices = {{kTail, 30}}, .decode = kDecode}, {.n_prompt = 30, .max_tokens = 2},
                 kPage, kNow + absl::Milliseconds(1));
  told(50);
  CHECK(left(1) == 40);
  CHECK(left(2) == 10);
  told(25);
  CHECK(left(1) == 25);
  CHECK(left(2) == 0);
  told(25, absl::ZeroDuration());  // the second one was not there yet
  CHECK(left(1) == 25);
  told(60);  // prompts that another router has sent, or that came late
  CHECK(left(1) == 40);
  CHECK(left(2) == 20);
  told(1000);
  CHECK(left(2) == 30);
  CHECK(ledger.At(kTail).prompts.at(1).work.Last(left(1)).pairs == CausalPairs(40, 0));
  CHECK(ledger.At(kTail).prompts.at(1).work.Last(10).pairs == CausalPairs(10, 30));
  ledger.OnQueued(77, 1, kNow);  // unknown
}

TEST_CASE("KV is under way until the decode worker has told a token; then its row runs") {
  Ledger ledger;
  Reserve(ledger, 1);
  Reserve(ledger, 2);
  REQUIRE(ledger.At(kTail).sending.size() == 1);
  CHECK(ledger.At(kTail).sending[0].worker == kDecode);
  CHECK(ledger.At(kTail).sending[0].tokens == 80);
  CHECK(ledger.At(kDecode).held.keys == 80);
  CHECK(ledger.At(kDecode).running.rows == 0);
  ledger.OnTokensLeft(kDecode, 1, 28);
  CHECK(ledger.At(kTail).sending[0].tokens == 40);
  CHECK(ledger.At(kDecode).running.rows == 1);
  CHECK(ledger.At(kDecode).running.keys == 42);
  CHECK(ledger.At(kDecode).running.tokens_left == 28);
  CHECK(ledger.At(kDecode).held.tokens_left == 58);
  ledger.Release(1, kPlan);
  CHECK(ledger.At(kDecode).running.rows == 0);
  CHECK(ledger.At(kDecode).held.rows == 1);
  ledger.Release(2, kPlan);
  CHECK(ledger.At(kTail).sending.empty());
  CHECK(ledger.At(kDecode).held.keys == 0);
}

TEST_CASE("rows are expected to end as recent requests did") {
  Ledger ledger;
  for (int i = 0; i < 100; ++i) ledger.OnEnded(5);
  Reserve(ledger, 1);
  const int64_t left = ledger.At(kDecode).held.tokens_left;
  CHECK(left >= 5);
  CHECK(left <= 6);
  ledger.OnTokensLeft(kDecode, 1, 10);  // of 30: it goes on for longer than others
  CHECK(ledger.At(kDecode).held.tokens_left == 10);
}

TEST_CASE("each rank of a relay has its slice") {
  Ledger ledger;
  Reserve(ledger, 1, kRelay);
  CHECK(ledger.At(kHead).prompts.at(1).work.tokens == 32);
  CHECK(ledger.At(kTail).prompts.at(1).work.tokens == 8);
  CHECK(ledger.At(kHead).prompts.at(1).is_slice);
  CHECK(ledger.At(kTail).prompts.at(1).is_slice);
  CHECK(ledger.waiting_prompts() == 2);
  ledger.OnPrefillComputed(kHead, 1);
  CHECK(ledger.waiting_prompts() == 1);
  ledger.Release(1, kRelay);
  for (const Incarnation worker : {kHead, kTail, kDecode}) CHECK(ledger.At(worker).parts.empty());
}

TEST_CASE("prompts that wait: those there now, or as many as recent requests found") {
  Ledger ledger;
  for (RequestId request = 1; request <= 40; ++request) Reserve(ledger, request);
  CHECK(ledger.waiting_prompts() == 40);
  for (RequestId request = 1; request <= 40; ++request) ledger.Release(request, kPlan);
  const double found = ledger.waiting_prompts();
  CHECK(found > 25);
  CHECK(found < 39);
  Reserve(ledger, 41);
  CHECK(ledger.waiting_prompts() == Approx(0.9 * found));
}

TEST_CASE("a worker that leaves takes its account along; a later life begins an empty one") {
  Ledger ledger;
  Reserve(ledger, 1);
  Reserve(ledger, 2);
  CHECK(ledger.At(kDecode).last_chosen == 2);
  std::vector<RequestId> requests = ledger.Leave(kDecode);
  std::sort(requests.begin(), requests.end());
  CHECK(requests == std::vector<RequestId>{1, 2});
  CHECK(ledger.Leave(kDecode).empty());
  CHECK(ledger.At(kDecode).last_chosen == 0);
  CHECK(ledger.pages_held() == 0);
  ledger.OnTokensLeft(kDecode, 1, 3);  // the worker is unknown
  ledger.OnPrefillComputed(kDecode, 1);
  ledger.Release(1, kPlan);
  CHECK(ledger.At(kTail).parts.size() == 1);
  CHECK(ledger.pages_held() == 0);
}

}  // namespace baton
