// Lost workers and failed parts at the router: the request continues on other workers.
#include <catch2/catch.hpp>

#include "tests/support/prefill_parts.h"
#include "tests/support/router_harness.h"

namespace baton {

TEST_CASE("a lost decode worker: the same position goes on elsewhere") {
  PairHarness r;
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation first = r.LastDecodeWorker();
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(first, {Token(id, 21, 8)}).ok());
  r.sent.clear();
  r.Lose(first);
  REQUIRE(r.sent.size() == 2);
  const PrefillRequest again = r.LastPrefill();
  CHECK(again.epoch == 2);
  CHECK(TicketOf(again).epoch == 2);
  CHECK(VerifyTicket(TestKey(), TicketOf(again)));
  REQUIRE(again.tokens.size() == 22);
  CHECK(again.tokens[20] == 7);
  CHECK(again.tokens[21] == 8);
  CHECK(again.sampling.seed == 5);
  CHECK(r.LastDecodeWorker() != first);
  CHECK(r.Sent<DecodeRequest>().at(0).second.tokens.size() == 22);
  CHECK(r.Sent<DecodeRequest>().at(0).second.max_tokens == 2);
  // Reports on the old attempt have no effect.
  REQUIRE(r.Report(kP1, {Token(id, 20, 99, 1), Token(id, 22, 99, 1)}).ok());
  REQUIRE(r.Report(kP1, {Token(id, 22, 9, 2), Ended(id, true, EndReason::kLength, 2)}).ok());
  REQUIRE(r.Report(r.LastDecodeWorker(),
                   {Token(id, 23, 10, 2), Ended(id, false, EndReason::kLength, 2)})
              .ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8, 9, 10});
  CHECK(r.End(id).timeline.attempts == 2);
  CheckIdle(r);
}

TEST_CASE("a lost prefill worker matters only until the handoff is known to be done") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  const RequestId id = r.Submit(20, 4);
  const Incarnation first = r.LastPrefillWorker();

  SECTION("before the first token: dispatched again, the decode worker told") {
    r.sent.clear();
    r.Lose(first);
    CHECK(r.Sent<CancelRequest>().size() == 1);
    CHECK(r.LastPrefillWorker() != first);
    CHECK(r.LastPrefill().tokens.size() == 20);
  }
  SECTION("after the first token, handoff open: dispatched again behind it") {
    REQUIRE(r.Report(first, {Token(id, 20, 7)}).ok());
    r.sent.clear();
    r.Lose(first);
    CHECK(r.LastPrefill().tokens.size() == 21);
  }
  SECTION("after its part ended: nothing happens") {
    REQUIRE(r.Report(first, {Token(id, 20, 7), Ended(id, true)}).ok());
    r.sent.clear();
    r.Lose(first);
    CHECK(r.sent.empty());
  }
  SECTION("after decode spoke: nothing happens, a late failure of the handoff neither") {
    REQUIRE(r.Report(first, {Token(id, 20, 7)}).ok());
    REQUIRE(r.Report(kD1, {Token(id, 21, 8)}).ok());
    r.sent.clear();
    REQUIRE(r.Report(first, {Ended(id, true, EndReason::kFailed)}).ok());
    r.Lose(first);
    CHECK(r.sent.empty());
  }
  SECTION("its first token lost with it while decode already spoke: dispatched again") {
    REQUIRE(r.Report(kD1, {Token(id, 21, 8)}).ok());
    r.sent.clear();
    r.Lose(first);
    CHECK(r.LastPrefill().tokens.size() == 20);
    CHECK(r.tokens[id].empty());
  }
}

TEST_CASE("when a role is gone the others serve it") {
  PairHarness r;
  const RequestId id = r.Submit(20, 4);
  r.sent.clear();
  r.Lose(kD1);
  CHECK(r.LastPrefillWorker() == kP1);
  CHECK(r.LastDecodeWorker() == kP1);
  CHECK(MainOf(r.LastPrefill()).peer.incarnation == kP1);
  r.Cancel(id);
}

TEST_CASE("without workers a request waits, bounded, for one to come") {
  PairHarness r;
  const RequestId a = r.Submit(20, 4);
  r.Lose(kD1);
  r.Lose(kP1);
  CHECK(r.router.View().waiting == 1);
  CHECK(r.router.Submit({.prompt = {1}}, r.now).status().code() == absl::StatusCode::kUnavailable);
  r.Advance(absl::Seconds(29));
  CHECK_FALSE(r.Ended(a));

  SECTION("one comes") {
    r.sent.clear();
    r.Join(kD2, Role::kDecode);
    CHECK(r.LastPrefillWorker() == kD2);
    CHECK(r.LastPrefill().epoch == 3);
    CHECK(r.router.View().running == 1);
    r.AdvanceWith(absl::Minutes(4), {kD2});
    CHECK_FALSE(r.Ended(a));
    r.Cancel(a);
  }
  SECTION("none comes") {
    CHECK(r.router.NextDeadline() == r.now + absl::Seconds(1));
    r.Advance(absl::Seconds(1));
    CHECK(r.End(a).status.code() == absl::StatusCode::kUnavailable);
  }
  CheckIdle(r);
}

TEST_CASE("a failed part is dispatched again, elsewhere if possible, a bounded number of times") {
  PairHarness r(RouterOptions{.max_attempts = 3});
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation first = r.LastDecodeWorker();
  REQUIRE(r.Report(first, {Ended(id, false, EndReason::kFailed, 1)}).ok());
  CHECK(r.Sent<PrefillRequest>().size() == 2);
  CHECK(r.LastDecodeWorker() != first);
  REQUIRE(r.Report(kP1, {Ended(id, true, EndReason::kFailed, 2)}).ok());
  CHECK(r.Sent<PrefillRequest>().size() == 3);
  const Incarnation third = r.LastPrefillWorker();
  REQUIRE(r.Report(third, {Ended(id, true, EndReason::kFailed, 3)}).ok());
  CHECK(r.Sent<PrefillRequest>().size() == 3);
  const EmitEnd& end = r.End(id);
  CHECK(end.reason == EndReason::kFailed);
  CHECK(end.status.code() == absl::StatusCode::kUnavailable);
  CHECK(end.status.message().find("3 attempts") != std::string::npos);
  CHECK(end.status.message().find("it broke") == std::string::npos);  // a worker's text
  CheckIdle(r);
}

TEST_CASE("a part that ends without its tokens is dispatched again") {
  PairHarness r;
  const RequestId id = r.Submit(20, 4);
  r.sent.clear();
  SECTION("prefill without a first token") {
    REQUIRE(r.Report(kP1, {Ended(id, true)}).ok());
    CHECK(r.LastPrefill().tokens.size() == 20);
  }
  SECTION("decode early") {
    REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
    REQUIRE(r.Report(kD1, {Token(id, 21, 8), Ended(id, false)}).ok());
    CHECK(r.LastPrefill().tokens.size() == 22);
  }
  SECTION("cancelled by the worker itself") {
    REQUIRE(r.Report(kD1, {Ended(id, false, EndReason::kCancelled)}).ok());
    CHECK(r.LastPrefill().epoch == 2);
  }
  SECTION("but not when the last token came first") {
    REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
    REQUIRE(r.Report(kD1, {Token(id, 21, 8), Token(id, 22, 9), Token(id, 23, 9),
                           Ended(id, false, EndReason::kFailed)})
                .ok());
    CHECK(r.End(id).reason == EndReason::kLength);
  }
}

}  // namespace baton
