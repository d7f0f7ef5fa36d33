// Log-probabilities of a prompt on their way through the router: whole, once, with the first token,
// whatever workers are lost.
#include <catch2/catch.hpp>

#include "tests/router/relay_harness.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Catch::Contains;

GenerateRequest Scored(int n_prompt, int max_tokens, int top) {
  GenerateRequest request;
  for (int32_t i = 0; i < n_prompt; ++i) request.prompt.push_back(100 + i);
  request.max_tokens = max_tokens;
  request.prompt_logprobs = top;
  return request;
}

PromptLogprobs Told(RequestId id, int32_t position, int n, Epoch epoch = 1, int top = 1) {
  PromptLogprobs told{.request_id = id, .epoch = epoch, .position = position};
  for (int i = 0; i < n; ++i) {
    PromptLogprob& token = told.tokens.emplace_back();
    token.logprob = -static_cast<float>(position + i);
    token.rank = position + i;
    token.top.resize(static_cast<size_t>(top), {7, -1});
  }
  return told;
}

std::vector<PromptLogprob> Whole(int n_prompt) { return Told(0, 1, n_prompt - 1).tokens; }

}  // namespace

TEST_CASE("they come with the first token, in order, however they were cut") {
  PairHarness r;
  const RequestId id = r.Submit(Scored(20, 4, 1));
  CHECK(r.LastPrefill().prompt_logprobs == 1);
  REQUIRE(r.Report(kP1, {Told(id, 1, 7)}).ok());
  REQUIRE(r.Report(kP1, {Told(id, 8, 11), Told(id, 19, 1)}).ok());
  CHECK(r.tokens[id].empty());
  REQUIRE(r.Report(kD1, {Token(id, 21, 6)}).ok());  // before the first one
  CHECK(r.tokens[id].empty());
  REQUIRE(r.Report(kP1, {Token(id, 20, 5)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{5, 6});
  CHECK(r.prompt_logprobs[id] == Whole(20));
  REQUIRE(r.Report(kD1, {Token(id, 22, 7), Token(id, 23, 8)}).ok());
  CHECK(r.End(id).reason == EndReason::kLength);
  CHECK(r.prompt_logprobs[id] == Whole(20));
}

TEST_CASE("a prompt of one token has none, and a request that does not ask gets none") {
  PairHarness r;
  const RequestId one = r.Submit(Scored(1, 2, 3));
  REQUIRE(r.Report(r.LastPrefillWorker(), {Token(one, 1, 5)}).ok());
  CHECK(r.tokens[one].size() == 1);
  const RequestId plain = r.Submit(20, 2);
  CHECK(r.LastPrefill().prompt_logprobs == -1);
  CHECK_FALSE(r.Report(r.LastPrefillWorker(), {Told(plain, 1, 1)}).ok());
}

TEST_CASE("an attempt that broke before its first token: the next one tells them again, once") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  const RequestId id = r.Submit(Scored(20, 4, 1));
  const Incarnation first = r.LastPrefillWorker();
  REQUIRE(r.Report(first, {Told(id, 1, 12)}).ok());
  r.Lose(first);
  const Incarnation second = r.LastPrefillWorker();
  REQUIRE(second != first);
  CHECK(r.LastPrefill().prompt_logprobs == 1);
  REQUIRE(r.Report(second, {Told(id, 1, 19, 2), Token(id, 20, 5, 2)}).ok());
  CHECK(r.prompt_logprobs[id] == Whole(20));
}

TEST_CASE("an attempt that goes on after the first token is not asked again") {
  PairHarness r;
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(Scored(20, 4, 1));
  REQUIRE(r.Report(kP1, {Told(id, 1, 19), Token(id, 20, 5)}).ok());
  SECTION("its decode worker was lost") { r.Lose(r.LastDecodeWorker()); }
  SECTION("its row was preempted") {
    REQUIRE(r.Report(r.LastDecodeWorker(), {Ended(id, false, EndReason::kPreempted)}).ok());
  }
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(r.LastPrefill().prompt_logprobs == -1);
  REQUIRE(r.Report(kP1, {Token(id, 21, 6, 2)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{5, 6});
  CHECK(r.prompt_logprobs[id] == Whole(20));
}

TEST_CASE("a part of them is a sign of life, and never shortens the time for the rest") {
  const absl::Duration silence = absl::Minutes(1);
  PairHarness r(RouterOptions{.attempt_silence = silence});
  REQUIRE(r.Report(kP1, {MeasuredLoad(1)}).ok());  // 20 seconds for the prompt, 400 with the slack
  const RequestId id = r.Submit(Scored(20, 4, 1));
  REQUIRE(r.Report(kP1, {Told(id, 1, 7)}).ok());
  r.AdvanceWith(absl::Seconds(450), {kP1, kD1});
  CHECK(r.LastPrefill().epoch == 1);
  REQUIRE(r.Report(kP1, {Told(id, 8, 7)}).ok());
  r.AdvanceWith(absl::Seconds(50), {kP1, kD1});  // beyond what was predicted
  CHECK(r.LastPrefill().epoch == 1);
  r.AdvanceWith(absl::Seconds(20), {kP1, kD1});
  CHECK(r.LastPrefill().epoch == 2);
}

TEST_CASE("no relay shares such a prompt") {
  RelayHarness r;
  r.Cancel(r.Submit(100, 3));
  REQUIRE(r.router.View().relays == 1);
  r.Submit(Scored(100, 3, 0));
  CHECK(r.router.View().relays == 1);
  CHECK(r.LastPrefill().tokens.size() == 100);
  CHECK(InflowTokens(r.LastPrefill()) == 0);
}

TEST_CASE("a worker that tells what it was not asked for is cut off") {
  PairHarness r;
  const RequestId id = r.Submit(Scored(20, 4, 1));
  const auto refusal = [&](std::vector<WorkerEvent> events) {
    return std::string(r.Report(kP1, std::move(events)).message());
  };
  SECTION("a gap") { CHECK_THAT(refusal({Told(id, 1, 3), Told(id, 5, 3)}), Contains("3 of 19")); }
  SECTION("twice") { CHECK_THAT(refusal({Told(id, 1, 3), Told(id, 1, 3)}), Contains("3 of 19")); }
  SECTION("too many") { CHECK_THAT(refusal({Told(id, 1, 20)}), Contains("0 of 19")); }
  SECTION("too many beside a token") {
    CHECK_THAT(refusal({Told(id, 1, 1, 1, 2)}), Contains("0 of 19"));
  }
  SECTION("a first token too early") {
    CHECK_THAT(refusal({Told(id, 1, 18), Token(id, 20, 5)}), Contains("18 of 19"));
  }
  SECTION("after the first token") {
    CHECK_THAT(refusal({Told(id, 1, 19), Token(id, 20, 5), Told(id, 1, 1)}), Contains("0 of 0"));
  }
  SECTION("another attempt's") { CHECK_THAT(refusal({Told(id, 1, 3, 2)}), Contains("attempt 2")); }
  SECTION("another worker") {
    CHECK_THAT(std::string(r.Report(kD1, {Told(id, 1, 3)}).message()), Contains("this worker"));
  }
}

TEST_CASE("the number asked for and the whole of them are bounded") {
  PairHarness r;
  const auto refusal = [&](const GenerateRequest& request) {
    return std::string(r.router.Submit(request, r.now).status().message());
  };
  CHECK_THAT(refusal(Scored(20, 4, 21)), Contains("prompt_logprobs: 21"));
  CHECK_THAT(refusal(Scored(20, 4, -2)), Contains("prompt_logprobs: -2"));
  CHECK_THAT(refusal(Scored((1 << 18) / 21 + 1, 4, 20)),
             Contains("log-probabilities of the prompt"));
}

}  // namespace baton
