// Blame, without a router: the worker that broken handoffs point at, and when a request that breaks
// again and again is given up.
#include "router/attempt_failure.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

using Catch::Contains;

constexpr Incarnation kDecode = 1, kTail = 11, kHead = 12, kFirst = 13;
const Plan kChain{.slices = {{kFirst, 32}, {kHead, 64}, {kTail, 80}}, .decode = kDecode};
const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);
constexpr absl::Duration kWait = absl::Milliseconds(200);

PartEnded Failed(PartFault fault, bool was_prefill = true) {
  return {.was_prefill = was_prefill,
          .reason = EndReason::kFailed,
          .fault = fault,
          .message = "it broke"};
}

TicketId Handoff(Incarnation from, Incarnation to) { return {.high = from, .low = to}; }

// The faults of an attempt whose ranks form a ring, and push.
struct Fault : AttemptFault {
  Fault() : AttemptFault(kWait, Ring()) {}
  static const Handoffs& Ring() {
    static const Handoffs handoffs = [] {
      Handoffs all;
      for (const auto& [from, to] : {std::pair(kFirst, kHead), {kHead, kTail}, {kTail, kFirst}}) {
        all[Handoff(from, to)] = {from, to};
        all[Handoff(from, kDecode)] = {from, kDecode};
      }
      return all;
    }();
    return handoffs;
  }
  void Report(Incarnation from, PartFault fault) { OnPartFailed(from, Failed(fault), kNow); }
  // `worker` reports that a handoff broke.
  void Break(Incarnation worker, Incarnation from, Incarnation to,
             absl::Duration after = absl::ZeroDuration()) {
    PartEnded ended = Failed(PartFault::kHandoff);
    ended.ticket_id = Handoff(from, to);
    OnPartFailed(worker, ended, kNow + after);
  }
};

}  // namespace

TEST_CASE("an attempt in which nothing broke has no failure and no culprit") {
  const Fault fault;
  CHECK(fault.failure().message.empty());
  CHECK(fault.Culprit() == 0);
  CHECK_FALSE(fault.AwaitedUntil());
  CHECK_FALSE(fault.MayHearMore(kNow));
}

TEST_CASE("a part that failed by itself, and a worker that was lost, are their own culprits") {
  Fault fault;
  fault.Report(kHead, PartFault::kOwn);
  CHECK(fault.failure().cause == FailoverCause::kPartFailed);
  CHECK(fault.failure().message == "it broke");
  CHECK(fault.Culprit() == kHead);
  fault.OnWorkerLost("decode", kDecode, "w1");
  CHECK(fault.failure().cause == FailoverCause::kWorkerLost);
  CHECK(fault.failure().message == "decode worker w1 was lost");
  CHECK(fault.Culprit() == kDecode);
  CHECK_FALSE(fault.MayHearMore(kNow));
  fault.OnPartFailed(kTail, {.was_prefill = true, .reason = EndReason::kCancelled}, kNow);
  CHECK(fault.failure().message == "prefill was given up by its worker");
  fault.Report(kTail, PartFault::kDraining);
  CHECK(fault.failure().cause == FailoverCause::kDraining);
}

TEST_CASE("one broken handoff points at its receiver, and more is awaited for a while") {
  const auto culprit = [](Incarnation from, Incarnation to) {
    Fault fault;
    fault.Break(from, from, to);
    CHECK(fault.failure().cause == FailoverCause::kHandoffFailed);
    CHECK(fault.AwaitedUntil() == kNow + kWait);
    CHECK(fault.MayHearMore(kNow + kWait - absl::Milliseconds(1)));
    CHECK_FALSE(fault.MayHearMore(kNow + kWait));
    return fault.Culprit();
  };
  CHECK(culprit(kFirst, kHead) == kHead);
  CHECK(culprit(kHead, kTail) == kTail);
  CHECK(culprit(kTail, kFirst) == kFirst);
  CHECK(culprit(kTail, kDecode) == kDecode);
  CHECK(culprit(kHead, kDecode) == kDecode);
  CHECK(culprit(kHead, kHead) == 0);  // no handoff of this attempt
  Fault fault;
  fault.Report(kTail, PartFault::kPeer);  // which handoff is not known
  CHECK(fault.failure().cause == FailoverCause::kHandoffFailed);
  CHECK(fault.Culprit() == 0);
}

TEST_CASE("two broken handoffs point at the worker that they share") {
  Fault fault;
  fault.Break(kFirst, kFirst, kHead);
  SECTION("which sends in the second") { fault.Break(kTail, kHead, kTail); }
  SECTION("which sends a push") { fault.Break(kHead, kHead, kDecode); }
  CHECK(fault.Culprit() == kHead);
  CHECK_FALSE(fault.MayHearMore(kNow));
}

TEST_CASE("both ends' reports of a handoff are one handoff") {
  Fault fault;
  fault.Break(kHead, kFirst, kHead);
  fault.Break(kFirst, kFirst, kHead, absl::Milliseconds(100));
  CHECK(fault.MayHearMore(kNow));
  CHECK(fault.AwaitedUntil() == kNow + kWait);  // counted from the first
  fault.Break(kFirst, kFirst, kDecode);
  CHECK(fault.Culprit() == kFirst);
}

TEST_CASE("failed parts and lost workers are counted apart, until an attempt gets on") {
  const RouterOptions options{.max_attempts = 2, .max_lost_attempts = 3};
  FailureRecord record(options);
  const AttemptFailure failed{.cause = FailoverCause::kPartFailed, .message = "it broke"};
  const AttemptFailure lost{.cause = FailoverCause::kWorkerLost, .message = "it was lost"};
  CHECK(record.Count(failed, false).ok());
  CHECK(record.Count(lost, false).ok());
  CHECK(record.Count({.cause = FailoverCause::kHandoffFailed}, false).ok());
  SECTION("a failed part too many") {
    const absl::Status status = record.Count({.cause = FailoverCause::kStuck}, false);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(status.message()), Contains("after 2 attempts"));
  }
  SECTION("a lost worker too many") {
    const absl::Status status = record.Count(lost, false);
    CHECK(status.code() == absl::StatusCode::kAborted);
    CHECK_THAT(std::string(status.message()), Contains("3 times in a row"));
    CHECK_THAT(std::string(status.message()), !Contains("it was lost"));  // a peer's text
  }
  SECTION("an attempt that got on") {
    CHECK(record.Count(failed, true).ok());
    CHECK_FALSE(record.Count(failed, false).ok());
  }
  SECTION("draining workers and slow links count for nothing") {
    for (int i = 0; i < 10; ++i) {
      CHECK(record.Count({.cause = FailoverCause::kDraining}, false).ok());
      CHECK(record.Count({.cause = FailoverCause::kLate}, false).ok());
    }
    CHECK_FALSE(record.Count(failed, false).ok());
  }
}

TEST_CASE("a broken handoff is blamed on the receiver, the next one on the sender too") {
  const RouterOptions options;
  FailureRecord record(options);
  const Plan plan{.slices = {{kTail, 80}}, .decode = kDecode};
  record.BlameHandoff(plan, false);
  CHECK(record.avoid() == std::vector<Incarnation>{kDecode});
  record.BlameHandoff({.slices = {{kHead, 80}}, .decode = kDecode}, false);
  CHECK(record.avoid() == std::vector<Incarnation>{kDecode});
  record.BlameHandoff(plan, false);
  CHECK(record.avoid() == std::vector<Incarnation>{kDecode, kTail});
  record.Blame(kTail);
  CHECK(record.avoid().size() == 2);
}

TEST_CASE("a relay without a token is blamed on its heads, one that spoke like any attempt") {
  const RouterOptions options;
  FailureRecord silent(options), spoke(options);
  silent.BlameHandoff(kChain, false);
  CHECK(silent.avoid() == std::vector<Incarnation>{kFirst, kHead});
  spoke.BlameHandoff(kChain, true);
  CHECK(spoke.avoid() == std::vector<Incarnation>{kDecode});
}

}  // namespace baton
