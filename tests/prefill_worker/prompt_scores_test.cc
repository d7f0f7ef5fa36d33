// Log-probabilities of a prompt's tokens: those of a step per token, however the prompt is cut and
// whatever else is computed; all of them before the first token.
#include <algorithm>

#include "tests/prefill_worker/scheduler_fixture.h"

namespace baton {
namespace {

// Every id has a prompt of its own.
PrefillRequest Scored(RequestId id, int n_tokens, int top, Incarnation sink = 0) {
  PrefillRequest request = SchedulerFixture::Request(id, n_tokens, sink);
  request.prompt_logprobs = top;
  return request;
}

// All that was told of a request; CHECKs that messages follow each other and are bounded.
std::vector<PromptLogprob> ToldOf(const SchedulerFixture& b, RequestId id) {
  std::vector<PromptLogprob> all;
  for (const PromptLogprobs& told : b.scores) {
    if (told.request_id != id) continue;
    CHECK(told.position == static_cast<int32_t>(all.size()) + 1);
    CHECK(told.tokens.size() <= static_cast<size_t>(Backend::kScoredAtOnce));
    all.insert(all.end(), told.tokens.begin(), told.tokens.end());
  }
  return all;
}

std::vector<PromptLogprob> Expected(const PrefillRequest& request) {
  HashBackend reference(kPageTokens);
  return SequentialScores(&reference, request.tokens, request.prompt_logprobs);
}

void RunAll(SchedulerFixture* b, int budget) {
  while (b->Step(budget) > 0) {
  }
}

}  // namespace

TEST_CASE("log-probabilities of a prompt do not depend on its chunks") {
  const int chunk = GENERATE(0, 1, 3, 32, 33);
  const int n_tokens = GENERATE(1, 2, 33, 100);
  const int top = GENERATE(0, 5);
  CAPTURE(chunk, n_tokens, top);
  SchedulerFixture b(200, chunk);
  const PrefillRequest request = Scored(1, n_tokens, top);
  b.Admit(request);
  RunAll(&b, 1000);
  REQUIRE(b.tokens.size() == 1);
  const std::vector<PromptLogprob> told = ToldOf(b, 1);
  REQUIRE(told.size() == request.tokens.size() - 1);
  CHECK(told == Expected(request));
  for (const PromptLogprob& token : told) CHECK(token.top.size() == static_cast<size_t>(top));
}

TEST_CASE("prompts share steps, and only those that ask are told") {
  const int budget = GENERATE(7, 40, 300);
  CAPTURE(budget);
  SchedulerFixture b;
  b.Admit(Scored(1, 60, 2));
  b.Admit(SchedulerFixture::Request(2, 35));
  b.Admit(Scored(3, 41, 0));
  b.Admit(SchedulerFixture::Request(4, 50));
  RunAll(&b, budget);
  REQUIRE(b.tokens.size() == 4);
  CHECK(ToldOf(b, 1) == Expected(Scored(1, 60, 2)));
  CHECK(ToldOf(b, 2).empty());
  CHECK(ToldOf(b, 3) == Expected(Scored(3, 41, 0)));
  CHECK(ToldOf(b, 4).empty());
  for (const TokenOut& token : b.tokens) {
    HashBackend reference(kPageTokens);
    const PrefillRequest request = SchedulerFixture::Request(token.request_id, token.position);
    CHECK(token.token == SequentialRun(&reference, request.tokens, 1, request.sampling).tokens[0]);
  }
}

TEST_CASE("cached KV is not reused by a prompt that is scored, and what it leaves is") {
  SchedulerFixture b;
  b.Admit(SchedulerFixture::Request(1, 22));
  REQUIRE(b.Step(100) == 22);
  PrefillRequest again = Scored(1, 22, 1);
  again.request_id = 2;
  b.Admit(again);
  REQUIRE(b.Step(100) == 22);
  CHECK(b.computed.at(2).reused_tokens == 0);
  CHECK(ToldOf(b, 2) == Expected(again));
  PrefillRequest plain = SchedulerFixture::Request(1, 22);
  plain.request_id = 3;
  b.Admit(plain);
  CHECK(b.Step(100) == 1);
  CHECK(b.pool->held() == 0);
}

TEST_CASE("ids from vocab_end on are not among the most probable tokens, and take no place") {
  SchedulerFixture b;
  PrefillRequest request = Scored(1, 20, 20);
  request.sampling.vocab_end = 15;
  for (int32_t& token : request.tokens) token %= 15;
  b.Admit(request);
  RunAll(&b, 100);
  const std::vector<PromptLogprob> told = ToldOf(b, 1);
  REQUIRE(told.size() == 19);
  for (size_t i = 0; i < told.size(); ++i) {
    REQUIRE(told[i].top.size() == 15);
    for (const TokenLogprob& other : told[i].top) CHECK(other.token < 15);
    const auto place = std::find_if(
        told[i].top.begin(), told[i].top.end(),
        [&](const TokenLogprob& other) { return other.token == request.tokens[i + 1]; });
    REQUIRE(place != told[i].top.end());
    CHECK(told[i].rank == place - told[i].top.begin() + 1);
    CHECK(told[i].logprob == place->logprob);
  }
}

TEST_CASE("an attempt that follows tells everything again, and a cancelled one nothing more") {
  SchedulerFixture b;
  b.Admit(Scored(1, 40, 1));
  REQUIRE(b.Step(10) == 10);
  const size_t n_told = ToldOf(b, 1).size();
  REQUIRE(n_told == 10);
  b.scheduler->prompts().Cancel(1, 1);
  b.Collect();
  REQUIRE(b.Step(100) == 0);
  CHECK(ToldOf(b, 1).size() == n_told);
  b.scores.clear();
  PrefillRequest next = Scored(1, 40, 1);
  next.epoch = 2;
  b.Admit(next);
  RunAll(&b, 100);
  CHECK(ToldOf(b, 1) == Expected(next));
  CHECK(b.pool->held() == 0);
}

TEST_CASE("a rank of a relay is not asked for log-probabilities") {
  SchedulerFixture b;
  PrefillRequest head = Scored(1, 40, 1, kPeer);
  SetHead(&head, SchedulerFixture::Id(2));
  b.Admit(head);
  b.Collect();
  REQUIRE(b.ends.count(1) == 1);
  CHECK(b.ends.at(1).reason == EndReason::kFailed);
  CHECK(b.ends.at(1).message.find("a rank of a relay") != std::string::npos);
}

}  // namespace baton
