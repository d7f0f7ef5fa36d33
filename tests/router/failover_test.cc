// A request whose attempt broke: the number of attempts, the next worker, the worker with its KV,
// and how long its parts outlive it.
#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

PartEnded HandoffFailed(RequestId id, bool was_prefill, Epoch epoch = 1) {
  PartEnded ended = Ended(id, was_prefill, EndReason::kFailed, epoch);
  ended.fault = PartFault::kHandoff;
  return ended;
}

uint64_t Failovers(const RouterHarness& r, FailoverCause cause) {
  return r.router.View().failovers[static_cast<size_t>(cause)];
}

}  // namespace

TEST_CASE(
    "all prefill workers dead, all decode workers dead: the others do both until they return") {
  PairHarness r;
  SECTION("no prefill worker") {
    r.Lose(kP1);
    const RequestId id = r.Submit(20, 4);
    CHECK(r.LastPrefillWorker() == kD1);
    CHECK(r.LastDecodeWorker() == kD1);
    r.Cancel(id);
    r.Join(kP2, Role::kPrefill);
    r.Cancel(r.Submit(20, 4));
    CHECK(r.LastPrefillWorker() == kP2);
    CHECK(r.LastDecodeWorker() == kD1);
  }
  SECTION("no decode worker") {
    r.Lose(kD1);
    const RequestId id = r.Submit(20, 4);
    CHECK(r.LastPrefillWorker() == kP1);
    CHECK(r.LastDecodeWorker() == kP1);
    r.Cancel(id);
    r.Join(kD2, Role::kDecode);
    r.Cancel(r.Submit(20, 4));
    CHECK(r.LastPrefillWorker() == kP1);
    CHECK(r.LastDecodeWorker() == kD2);
  }
}

TEST_CASE("a storm of lost workers does not use up the attempts of a request that gets on") {
  PairHarness r(RouterOptions{.max_attempts = 1, .max_lost_attempts = 2});
  const RequestId id = r.Submit(20, 200);
  Incarnation next = 100;
  std::vector<int32_t> wanted;
  for (Epoch epoch = 1; epoch <= 20; ++epoch) {
    for (int i = 0; i < 8; ++i) {
      const auto position = static_cast<int32_t>(20 + wanted.size());
      wanted.push_back(position);
      const Incarnation from = i == 0 ? r.LastPrefillWorker() : r.LastDecodeWorker();
      REQUIRE(r.Report(from, {Token(id, position, position, epoch)}).ok());
    }
    r.Join(++next, Role::kDecode);
    r.Lose(r.LastDecodeWorker());
    REQUIRE_FALSE(r.Ended(id));
  }
  CHECK(r.tokens[id] == wanted);
  CHECK(Failovers(r, FailoverCause::kWorkerLost) == 20);
}

TEST_CASE("a request that is there whenever a worker dies is refused as the possible cause") {
  RouterHarness r(RouterOptions{.max_attempts = 1, .max_lost_attempts = 3});
  r.Join(1, Role::kBoth);
  const RequestId id = r.Submit(20, 40);
  for (Incarnation worker = 1; worker <= 3; ++worker) {
    REQUIRE_FALSE(r.Ended(id));
    // Each worker emits a few tokens, then dies.
    const auto epoch = static_cast<Epoch>(worker);
    const auto position = static_cast<int32_t>(r.LastPrefill().tokens.size());
    REQUIRE(r.Report(worker, {Token(id, position, 7, epoch)}).ok());
    r.Join(worker + 1, Role::kBoth);
    r.Lose(worker);
  }
  CHECK(r.End(id).status.code() == absl::StatusCode::kAborted);
  CHECK_THAT(std::string(r.End(id).status.message()), Catch::Contains("3 times in a row"));
  CHECK(r.router.View().prefill_workers == 1);  // the fourth lives
}

TEST_CASE("each attempt tells its workers how many tokens there are, and which, where it matters") {
  PairHarness r;
  r.Join(kD2, Role::kDecode);
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 10;
  request.stop_tokens = {9};
  // With a history from the first attempt on, only from the second on, or never.
  const int kind = GENERATE(0, 1, 2, 3);
  if (kind == 0) request.sampling.repetition_penalty = 1.5f;
  if (kind == 1) request.sampling.presence_penalty = 0.5f;
  if (kind == 2) request.sampling.bad_words = {{4, 5}};
  request.sampling.min_tokens = 4;
  const RequestId id = r.Submit(request);
  CHECK(r.LastPrefill().n_generated == 0);
  CHECK(r.LastPrefill().stop_tokens == request.stop_tokens);
  CHECK(r.LastPrefill().sampling == request.sampling);
  CHECK(r.LastDecode().n_generated == 0);
  CHECK(r.LastDecode().tokens == request.prompt);

  const Incarnation decode = r.LastDecodeWorker();
  REQUIRE(r.Report(kP1, {Token(id, 3, 7)}).ok());
  REQUIRE(r.Report(decode, {Token(id, 4, 8)}).ok());
  r.Lose(decode);
  const std::vector<int32_t> so_far = {1, 2, 3, 7, 8};
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(r.LastPrefill().tokens == so_far);
  CHECK(r.LastPrefill().n_generated == 2);
  CHECK(r.LastDecode().epoch == 2);
  CHECK(r.LastDecode().n_generated == 2);
  CHECK(r.LastDecode().tokens == so_far);
  r.Cancel(id);
}

TEST_CASE("logprobs come with their tokens, also with one that came before its turn") {
  PairHarness r;
  const RequestId id = r.Submit(20, 3);
  const auto with = [&](int32_t position, float logprob) {
    TokenOut token = Token(id, position, position);
    token.logprobs = {{position, logprob}, {1, -9}};
    return token;
  };
  REQUIRE(r.Report(kD1, {with(21, -2)}).ok());
  CHECK(r.tokens[id].empty());
  REQUIRE(r.Report(kP1, {with(20, -1)}).ok());
  REQUIRE(r.Report(kD1, {with(22, -3)}).ok());
  CHECK(r.logprobs[id] == std::vector<std::vector<TokenLogprob>>{
                              {{20, -1}, {1, -9}}, {{21, -2}, {1, -9}}, {{22, -3}, {1, -9}}});
}

TEST_CASE("the worker that computed the prompt computes it again, if it still has its KV") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(2000, 4);
  const Incarnation prefill = r.LastPrefillWorker(), decode = r.LastDecodeWorker();
  const Incarnation other = prefill == kP1 ? kP2 : kP1;
  // The other prefill worker is faster, but has no KV of the request.
  REQUIRE(r.Report(prefill, {MeasuredLoad(1000)}).ok());
  REQUIRE(r.Report(other, {MeasuredLoad(4000)}).ok());
  SECTION("before the prompt is computed nothing is known to be there") {
    r.Lose(decode);
    CHECK(r.LastPrefillWorker() == other);
  }
  SECTION("after the first token") {
    REQUIRE(r.Report(prefill, {Token(id, 2000, 7)}).ok());
    SECTION("decode lost") { r.Lose(decode); }
    SECTION("decode lost while it was silent") {
      r.AdvanceWith(absl::Seconds(4), {kP1, kP2, decode == kD1 ? kD2 : kD1});
    }
    SECTION("decode lost long after the handoff") {
      REQUIRE(r.Report(prefill, {Ended(id, true)}).ok());
      r.Lose(decode);
    }
    SECTION("the handoff broke, the prefill worker says so") {
      REQUIRE(r.Report(prefill, {HandoffFailed(id, true)}).ok());
    }
    CHECK(r.LastPrefillWorker() == prefill);
    CHECK(r.LastPrefill().epoch == 2);
    CHECK(r.LastPrefill().tokens.size() == 2001);
    CHECK(r.LastDecodeWorker() != decode);
  }
  SECTION("not when it came back as another life") {
    REQUIRE(r.Report(prefill, {Token(id, 2000, 7), Ended(id, true)}).ok());
    r.Lose(prefill);
    r.Join(99, Role::kPrefill);
    r.Lose(decode);
    CHECK(r.LastPrefillWorker() == other);
  }
  r.Cancel(id);
}

TEST_CASE("a broken handoff is blamed on the receiver first, then on the sender too") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation prefill = r.LastPrefillWorker(), decode = r.LastDecodeWorker();
  REQUIRE(r.Report(prefill, {Token(id, 20, 7), HandoffFailed(id, true)}).ok());
  CHECK(r.LastPrefillWorker() == prefill);  // `prefill` has the KV
  CHECK(r.LastDecodeWorker() != decode);
  REQUIRE(r.Report(prefill, {Token(id, 21, 8, 2), HandoffFailed(id, true, 2)}).ok());
  CHECK(r.LastPrefillWorker() != prefill);
  CHECK(r.LastPrefill().tokens.size() == 22);
  CHECK(Failovers(r, FailoverCause::kHandoffFailed) == 2);
  r.Cancel(id);
}

TEST_CASE("an attempt without a sign of life is given up, its workers are asked last") {
  PairHarness r(RouterOptions{.attempt_silence = absl::Seconds(60)});
  r.Join(kP2, Role::kPrefill);
  r.Join(kD2, Role::kDecode);
  const std::vector<Incarnation> all = {kP1, kP2, kD1, kD2};
  const RequestId id = r.Submit(20, 4);
  const Incarnation prefill = r.LastPrefillWorker(), decode = r.LastDecodeWorker();
  r.AdvanceWith(absl::Seconds(59), all);
  CHECK(r.Sent<PrefillRequest>().size() == 1);
  SECTION("in prefill") {
    r.AdvanceWith(absl::Seconds(5), all);
    CHECK(r.LastPrefillWorker() != prefill);
    CHECK(r.LastDecodeWorker() != decode);
  }
  SECTION("while it streams, from its last token on") {
    REQUIRE(r.Report(prefill, {Token(id, 20, 7), Ended(id, true)}).ok());
    r.AdvanceWith(absl::Seconds(58), all);
    CHECK(r.Sent<PrefillRequest>().size() == 1);
    r.AdvanceWith(absl::Seconds(5), all);
    CHECK(r.LastDecodeWorker() != decode);
    CHECK(r.LastPrefill().tokens.size() == 21);
  }
  SECTION("but not while it is told to wait for room") {
    REQUIRE(r.Report(prefill,
                     {NoRoomNotice{.request_id = id, .epoch = 1, .expected_wait_us = 100'000'000}})
                .ok());
    const size_t moved = r.Sent<PrefillRequest>().size();
    r.AdvanceWith(absl::Seconds(50), all);
    CHECK(r.Sent<PrefillRequest>().size() == moved);
    r.Cancel(id);
    return;
  }
  CHECK(Failovers(r, FailoverCause::kStuck) == 1);
  CHECK(r.Sent<CancelRequest>().size() >= 1);
  r.AdvanceWith(absl::Minutes(4), all);  // and so on until no attempt is left
  CHECK(r.End(id).status.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a cancelled request is remembered until its parts have ended, and the time is told") {
  PairHarness r;
  const RequestId id = r.Submit(20, 4);
  SECTION("both parts") {
    r.Cancel(id);
    CHECK(r.router.View().ending == 1);
    CHECK(r.router.View().running == 0);
    r.now += absl::Milliseconds(30);
    REQUIRE(r.Report(kD1, {Ended(id, false, EndReason::kCancelled)}).ok());
    CHECK(r.released.empty());
    r.now += absl::Milliseconds(12);
    REQUIRE(r.Report(kP1, {Ended(id, true, EndReason::kCancelled)}).ok());
    REQUIRE(r.released.count(id) == 1);
    CHECK(r.released[id].after == absl::Milliseconds(42));
    CHECK_FALSE(r.released[id].overdue);
  }
  SECTION("a worker is lost meanwhile: no time is told") {
    r.Cancel(id);
    SECTION("after the other's part has ended") {
      REQUIRE(r.Report(kD1, {Ended(id, false, EndReason::kCancelled)}).ok());
      r.Lose(kP1);
    }
    SECTION("before the other's part has ended") {
      r.Lose(kP1);
      CHECK(r.router.View().ending == 1);
      REQUIRE(r.Report(kD1, {Ended(id, false, EndReason::kCancelled)}).ok());
    }
    CHECK(r.released.empty());
  }
  SECTION("a worker that never says so") {
    r.Cancel(id);
    SECTION("of two that are there") { r.AdvanceWith(absl::Seconds(31), {kP1, kD1}); }
    SECTION("and the other one is lost") {
      r.Lose(kP1);
      r.AdvanceWith(absl::Seconds(31), {kD1});
    }
    CHECK(r.released[id].overdue);
  }
  SECTION("it had waited: nothing to let go of") {
    r.Lose(kP1);
    r.Lose(kD1);
    r.Cancel(id);
    CHECK(r.released.empty());
  }
  SECTION("it ended by itself, and so did its parts") {
    REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
    REQUIRE(r.Report(kD1, {Token(id, 21, 7), Token(id, 22, 7), Token(id, 23, 7), Ended(id, false)})
                .ok());
    CHECK(r.released.empty());
  }
  CHECK(r.router.View().ending == 0);
  CHECK(r.Ended(id));
  CheckIdle(r);
}

TEST_CASE("ended requests whose parts linger take no place of new ones") {
  PairHarness r(RouterOptions{.max_waiting = 2});
  for (int i = 0; i < 10; ++i) r.Cancel(r.Submit(4, 4));
  CHECK(r.router.View().ending == 10);
  r.Submit(4, 4);
  r.Submit(4, 4);
  CHECK(r.router.Submit({.prompt = {1}}, r.now).status().code() ==
        absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a handoff that its source gave up is judged by what the source tells") {
  PairHarness r;
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation decode = r.LastDecodeWorker();
  REQUIRE(r.Report(decode, {HandoffFailed(id, false)}).ok());
  CHECK(r.Sent<PrefillRequest>().size() == 1);  // the prefill part is open, and may know why
  SECTION("its request's fault") {
    PartEnded ended = Ended(id, true, EndReason::kFailed);
    ended.fault = PartFault::kGrammar;
    REQUIRE(r.Report(kP1, {ended}).ok());
    CHECK(r.End(id).status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(r.Sent<PrefillRequest>().size() == 1);
  }
  SECTION("nothing new") {
    REQUIRE(r.Report(kP1, {HandoffFailed(id, true)}).ok());
    CHECK(r.Sent<PrefillRequest>().size() == 2);
    r.Cancel(id);
  }
  SECTION("nothing in time") {
    r.Advance(RouterOptions().blame_wait);
    CHECK(r.Sent<PrefillRequest>().size() == 2);
    r.Cancel(id);
  }
}

}  // namespace baton
