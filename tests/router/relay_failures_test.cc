// Relays that are cancelled, or whose head, tail or decode worker fails or is lost.
#include <catch2/catch.hpp>

#include "tests/router/relay_harness.h"

namespace baton {
namespace {

bool Avoids(const RelayHarness& r, Incarnation worker) { return r.LastPrefillWorker() != worker; }

}  // namespace

TEST_CASE("cancel at every point of a relay tells each worker with a part, once") {
  for (int point = 0; point <= 5; ++point) {
    RelayHarness r;
    const RequestId id = r.Submit(100, 4);
    const std::vector<std::pair<Incarnation, WorkerEvent>> story = {
        {kHead, NoRoomNotice{.request_id = id, .epoch = 1, .expected_wait_us = 1'000'000}},
        {kHead, Ended(id, true)},
        {kTail, Token(id, 100, 7)},
        {kTail, Ended(id, true)},
        {kDecode1, Token(id, 101, 8)},
    };
    for (int i = 0; i < point; ++i) REQUIRE(r.Report(story[i].first, {story[i].second}).ok());
    CHECK(r.sent.size() == 3);
    r.Cancel(id);
    r.Cancel(id);
    CHECK(r.End(id).reason == EndReason::kCancelled);
    Incarnations wanted = {kDecode1};
    if (point < 4) wanted.push_back(kTail);
    if (point < 2) wanted.push_back(kHead);
    CHECK(r.Cancelled() == wanted);
    CHECK(r.router.View().ending == 1);
    for (const Incarnation worker : wanted) {
      CHECK(r.released.empty());
      const bool was_prefill = worker != kDecode1;
      REQUIRE(r.Report(worker, {Ended(id, was_prefill, EndReason::kCancelled)}).ok());
    }
    CHECK(r.released.count(id) == 1);
    CHECK(r.router.View().ending == 0);
    CheckIdle(r);
  }
}

RouterOptions TailHandsOver() {
  RouterOptions options = Relays();
  options.relay.sharing = SharingOf({.push = RelayPush::kTail});
  return options;
}

TEST_CASE("a lost head matters until its KV is where it is wanted") {
  RelayHarness r;
  const RequestId id = r.Submit(100, 4);
  r.sent.clear();
  SECTION("at once, and no other worker can take its place: dispatched again, at the tail") {
    r.Lose(kHead);
    CHECK(r.Cancelled() == Incarnations{kDecode1});
    CHECK(r.LastPrefillWorker() == kTail);
    CHECK(r.LastPrefill().epoch == 2);
    CHECK(LastSlice(r.LastPrefill()).inflow == TicketId{});
    CHECK(r.LastPrefill().slices.size() == 2);
    CHECK(r.Sent<PrefillRequest>().size() == 1);
    CHECK(r.router.View().relays == 1);
    CHECK(r.router.View().ranks_replaced == 1);
    CHECK(r.router.View().failovers[static_cast<size_t>(FailoverCause::kWorkerLost)] == 1);
    r.Cancel(id);
  }
  SECTION("after its part ended: nothing happens") {
    REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
    r.Lose(kHead);
    CHECK(r.sent.empty());
    // The tail may still report a wait for room; its place in the queue is kept.
    r.Join(kDecode2, Role::kDecode);
    REQUIRE(r.Report(kTail,
                     {NoRoomNotice{.request_id = id, .epoch = 1, .expected_wait_us = 60'000'000}})
                .ok());
    CHECK(r.sent.empty());
  }
  SECTION("after the first token: the decode worker may lack its slice") {
    REQUIRE(r.Report(kTail, {Token(id, 100, 7), Ended(id, true)}).ok());
    r.Lose(kHead);
    CHECK(r.LastPrefill().epoch == 2);
    CHECK(r.LastPrefill().tokens.size() == 101);
  }
  SECTION("when the decode worker was faster than the first token: nothing happens") {
    REQUIRE(r.Report(kDecode1, {Token(id, 101, 8)}).ok());
    r.Lose(kHead);
    CHECK(r.sent.empty());
    REQUIRE(r.Report(kTail, {Token(id, 100, 7)}).ok());
    CHECK(r.tokens[id] == std::vector<int32_t>{7, 8});
  }
  r.Cancel(id);
  CheckIdle(r);
}

TEST_CASE("a head that fails: one worker goes on, and who is at fault is asked last") {
  RelayHarness r;
  const RequestId id = r.Submit(100, 4);
  r.sent.clear();
  size_t open = 2;  // parts of workers that do not continue
  SECTION("its own fault") {
    REQUIRE(r.Report(kHead, {Failed(id, true, PartFault::kOwn)}).ok());
    CHECK(Avoids(r, kHead));
    open = 1;
  }
  SECTION("a handoff: the one it was for") {
    REQUIRE(r.Report(kHead, {r.Broken(id, kHead, kTail)}).ok());
    r.Advance(RouterOptions().blame_wait);
    CHECK(Avoids(r, kTail));
    CHECK(r.router.View().failovers[static_cast<size_t>(FailoverCause::kHandoffFailed)] == 1);
  }
  SECTION("a handoff, as the tail sees it: it may have been the head's") {
    REQUIRE(r.Report(kTail, {r.Broken(id, kTail, kDecode1)}).ok());
    r.Advance(RouterOptions().blame_wait);
    CHECK(Avoids(r, kHead));
    CHECK(r.LastPrefill().slices.size() == 1);
  }
  SECTION("it drains") {
    REQUIRE(r.Report(kHead, {Failed(id, true, PartFault::kDraining)}).ok());
    CHECK(Avoids(r, kHead));
    CHECK(r.router.View().prefill_workers == 1);
    open = 1;
  }
  SECTION("it was given up by its worker") {
    REQUIRE(r.Report(kHead, {Ended(id, true, EndReason::kCancelled)}).ok());
    open = 1;
  }
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(r.LastPrefill().tokens.size() == 100);
  CHECK(r.Sent<PrefillRequest>().size() == 1);
  CHECK(r.Sent<CancelRequest>().size() == open);  // the parts that had not ended
  const Incarnation prefill = r.LastPrefillWorker();
  REQUIRE(r.Report(prefill, {Token(id, 100, 7, 2), Ended(id, true, EndReason::kLength, 2)}).ok());
  REQUIRE(r.Report(kDecode1, {Token(id, 101, 8, 2), Token(id, 102, 8, 2), Token(id, 103, 8, 2),
                              Ended(id, false, EndReason::kLength, 2)})
              .ok());
  CHECK(r.End(id).reason == EndReason::kLength);
  CHECK(r.End(id).timeline.prefill_heads.empty());
  CheckIdle(r);
}

TEST_CASE("a head that fails once its KV is where it is wanted harms no request") {
  const bool pushes = GENERATE(true, false);
  for (const PartFault fault : {PartFault::kOwn, PartFault::kHandoff, PartFault::kDraining}) {
    RelayHarness r(pushes ? Relays() : TailHandsOver());
    const RequestId id = r.Submit(100, 4);
    REQUIRE(r.Report(kTail, {Token(id, 100, 7)}).ok());
    if (pushes) REQUIRE(r.Report(kDecode1, {Token(id, 101, 8)}).ok());
    REQUIRE(r.Report(kHead, {Failed(id, true, fault)}).ok());
    CHECK(r.sent.size() == 3);
    r.Cancel(id);
    CHECK(r.Cancelled() == Incarnations{kDecode1, kTail});
    CheckIdle(r);
  }
}

TEST_CASE("a broken handoff of a relay that had brought tokens is the decode worker's") {
  RelayHarness r;
  r.Join(kDecode2, Role::kDecode);
  const RequestId id = r.Submit(100, 4);
  const Incarnation decode = r.LastDecodeWorker();
  REQUIRE(r.Report(kTail, {Token(id, 100, 7), r.Broken(id, kTail, kDecode1)}).ok());
  CHECK(r.LastDecodeWorker() != decode);
  CHECK(r.LastPrefillWorker() == kTail);  // the tail has the KV
  CHECK_FALSE(r.LastIsRelay());
  CHECK(r.LastPrefill().tokens.size() == 101);
  r.Cancel(id);
  CheckIdle(r);
}

TEST_CASE("a lost tail or decode worker of a relay: the others are told, and it goes on") {
  RelayHarness r;
  r.Join(kDecode2, Role::kDecode);
  const RequestId id = r.Submit(100, 4);
  const Incarnation decode = r.LastDecodeWorker();
  const Incarnation other = decode == kDecode1 ? kDecode2 : kDecode1;
  r.sent.clear();
  SECTION("the tail, before the first token") {
    r.Lose(kTail);
    CHECK(r.Cancelled() == Incarnations{decode});
    CHECK(r.LastPrefillWorker() == kHead);
    CHECK(r.LastPrefill().slices.size() == 2);  // the worker's own slice, then the tail's
    CHECK(r.LastPrefill().tokens.size() == 100);
  }
  SECTION("the tail, after the first token, handoff open") {
    REQUIRE(r.Report(kTail, {Token(id, 100, 7)}).ok());
    r.Lose(kTail);
    CHECK(r.LastPrefillWorker() == kHead);
    CHECK(r.LastPrefill().tokens.size() == 101);
  }
  SECTION("the decode worker, before the first token") {
    r.Lose(decode);
    CHECK(r.Cancelled().empty());
    CHECK(r.LastDecodeWorker() == other);
    CHECK(r.LastIsRelay());
    CHECK(r.router.View().sinks_replaced == 1);
    r.Cancel(id);
    return;
  }
  SECTION("the decode worker, after it spoke: the tail has the KV") {
    REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
    REQUIRE(r.Report(kTail, {Token(id, 100, 7), Ended(id, true)}).ok());
    REQUIRE(r.Report(decode, {Token(id, 101, 8)}).ok());
    r.Lose(decode);
    CHECK(r.Cancelled().empty());
    CHECK(r.LastPrefillWorker() == kTail);
    CHECK(r.LastPrefill().tokens.size() == 102);
  }
  CHECK_FALSE(r.LastIsRelay());
  CHECK(r.LastPrefill().epoch == 2);
  r.Cancel(id);
  CheckIdle(r);
}

// When a mended relay brings its token is not predicted, so it is never late.
TEST_CASE("a mended relay that no worker reports on is given up, its three workers asked last") {
  RelayHarness r(Relays({.attempt_silence = absl::Seconds(60)}));
  r.Join(kThird, Role::kPrefill);
  r.Join(kDecode2, Role::kDecode);
  const RequestId id = r.Submit(100, 4);
  REQUIRE(r.Sent<PrefillRequest>().size() == 2);
  r.Lose(kHead);
  REQUIRE(r.router.View().ranks_replaced == 1);
  r.Join(20, Role::kPrefill);
  r.sent.clear();
  r.AdvanceWith(absl::Seconds(70), {kDecode1, kDecode2, kTail, kThird, 20});
  REQUIRE(r.Sent<PrefillRequest>().size() == 1);
  CHECK(r.Sent<CancelRequest>().size() == 3);
  CHECK(r.LastPrefillWorker() == 20);
  r.Cancel(id);
}

}  // namespace baton
