// Workers that fall silent, leave or come back: the time of their loss, and the reports that still
// count.
#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

struct ThreeWorkers : PairHarness {
  explicit ThreeWorkers(const RouterOptions& options = {}) : PairHarness(options) {
    Join(kD2, Role::kDecode);
  }
};

}  // namespace

TEST_CASE("a silent worker is given up within its bound, its stream closed, its requests go on") {
  ThreeWorkers r;
  const RequestId id = r.Submit(20, 4);
  const Incarnation silent = r.LastDecodeWorker();
  const Incarnation other = silent == kD1 ? kD2 : kD1;
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(silent, {Token(id, 21, 8)}).ok());
  r.AdvanceWith(absl::Milliseconds(2900), {kP1, other});
  CHECK(r.closed.empty());
  r.sent.clear();
  r.AdvanceWith(absl::Milliseconds(900), {kP1, other});
  REQUIRE(r.closed.size() == 1);
  CHECK(r.closed[0].worker == silent);
  CHECK(r.closed[0].reason.code() == absl::StatusCode::kUnavailable);
  CHECK(r.LastDecodeWorker() == other);
  CHECK(r.LastPrefill().tokens.size() == 22);
  CHECK(r.Sent<CancelRequest>().empty());  // a cancel could not reach the worker
  CHECK(r.router.View().failovers[static_cast<int>(FailoverCause::kWorkerLost)] == 1);

  // The worker comes back on a new stream with the same incarnation; its reports on old attempts
  // are stale.
  r.Lose(silent);
  r.Join(silent, Role::kDecode);
  REQUIRE(r.Report(silent, {Token(id, 22, 99, 1), Token(id, 23, 99, 1),
                            Ended(id, false, EndReason::kCancelled, 1)})
              .ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8});
  REQUIRE(r.Report(kP1, {Token(id, 22, 9, 2), Ended(id, true, EndReason::kLength, 2)}).ok());
  REQUIRE(r.Report(other, {Token(id, 23, 10, 2), Ended(id, false, EndReason::kLength, 2)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8, 9, 10});
  // The worker is chosen like any other.
  std::map<Incarnation, int> chosen;
  for (int i = 0; i < 4; ++i) {
    const RequestId next = r.Submit(20, 4);
    ++chosen[r.LastDecodeWorker()];
    r.Cancel(next);
  }
  CHECK(chosen[silent] > 0);
  CheckIdle(r);
}

TEST_CASE("any report is a sign of life, an empty one too") {
  PairHarness r;
  r.AdvanceWith(absl::Seconds(60), {kP1, kD1});
  CHECK(r.closed.empty());
  CHECK(r.router.View().prefill_workers == 1);
}

TEST_CASE("all workers silent at once: none is a refuge for another's requests") {
  ThreeWorkers r;
  const RequestId id = r.Submit(20, 4);
  r.Advance(absl::Seconds(4));
  CHECK(r.closed.size() == 3);
  CHECK(r.Sent<PrefillRequest>().size() == 1);
  CHECK(r.router.View().waiting == 1);
  r.Join(kP2, Role::kBoth);
  CHECK(r.LastPrefillWorker() == kP2);
  r.Cancel(id);
}

TEST_CASE("a router that stood still itself learns nothing from silence") {
  PairHarness r;
  r.AdvanceWith(absl::Seconds(5), {kP1, kD1});
  r.now += absl::Seconds(20);  // no OnTime in between: the router's process was stopped
  r.router.OnTime(r.now);
  r.Collect();
  CHECK(r.closed.empty());
  r.Advance(absl::Milliseconds(2900));
  CHECK(r.closed.empty());
  r.Advance(absl::Seconds(1));  // enough time for the workers to report
  CHECK(r.closed.size() == 2);
}

TEST_CASE("silence is not looked at when the bound is infinite") {
  PairHarness r(RouterOptions{.worker_silence = absl::InfiniteDuration()});
  CHECK(r.router.NextDeadline() == absl::InfiniteFuture());
  r.Advance(absl::Hours(1));
  CHECK(r.closed.empty());
}

TEST_CASE("a draining worker gets nothing new, and finishes what it has") {
  ThreeWorkers r;
  const RequestId id = r.Submit(20, 3);
  const Incarnation leaving = r.LastDecodeWorker();
  const Incarnation other = leaving == kD1 ? kD2 : kD1;
  REQUIRE(r.Report(leaving, {WorkerLoad{.draining = true}}).ok());
  for (int i = 0; i < 4; ++i) {
    r.Cancel(r.Submit(20, 4));
    CHECK(r.LastDecodeWorker() == other);
  }
  CHECK(r.router.View().decode_workers == 1);
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(leaving, {Token(id, 21, 8), Token(id, 22, 9), Ended(id, false)}).ok());
  CHECK(r.End(id).reason == EndReason::kLength);
  CHECK(r.End(id).timeline.attempts == 1);
}

TEST_CASE("a request that a draining worker refused is moved, and loses no attempt by it") {
  ThreeWorkers r(RouterOptions{.max_attempts = 1, .max_lost_attempts = 1});
  const RequestId id = r.Submit(20, 3);
  const Incarnation leaving = r.LastDecodeWorker();
  PartEnded refused = Ended(id, false, EndReason::kFailed);
  refused.fault = PartFault::kDraining;
  REQUIRE(r.Report(leaving, {refused}).ok());
  CHECK_FALSE(r.Ended(id));
  CHECK(r.LastDecodeWorker() != leaving);
  CHECK(r.router.View().failovers[static_cast<int>(FailoverCause::kDraining)] == 1);
  r.Cancel(id);
}

TEST_CASE("when all workers drain, new requests are refused and waiting ones wait for another") {
  PairHarness r;
  for (const Incarnation worker : {kP1, kD1})
    REQUIRE(r.Report(worker, {WorkerLoad{.draining = true}}).ok());
  const absl::Status refused = r.router.Submit({.prompt = {1}}, r.now).status();
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
}

}  // namespace baton
