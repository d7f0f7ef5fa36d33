// Relays that are late: when they are given up for one worker alone, and its limit of one per
// request.
#include "tests/router/relay_harness.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// One worker computes 1000 tokens a second; two of them share 100 tokens.
struct LateRelay : RelayHarness {
  LateRelay() {
    id = Submit(100, 3);
    REQUIRE(LastIsRelay());
    REQUIRE(LastPrefill().tokens.size() == 48);
    sent.clear();
    now += absl::Milliseconds(60);  // the reports before that may not know the slices yet
    IsIdle();
  }
  void IsIdle() {
    for (const Incarnation worker : {kDecode1, kTail, kHead})
      REQUIRE(Report(worker, {MeasuredLoad(1000)}).ok());
  }
  uint64_t GivenUp() const {
    return router.View().failovers[static_cast<size_t>(FailoverCause::kLate)];
  }
  RequestId id = 0;
};

TEST_CASE("a relay that is late by four times what one worker alone takes goes on at one, once") {
  LateRelay r;
  // Expected after 1.1 times 52 ms; then 100 ms, and 4 times 52 ms for what the head has not.
  r.Advance(absl::Milliseconds(290));
  CHECK(r.sent.empty());
  r.Advance(absl::Milliseconds(40));
  CHECK(r.GivenUp() == 1);
  REQUIRE(r.Sent<PrefillRequest>().size() == 1);
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(LastSlice(r.LastPrefill()).inflow == TicketId{});
  CHECK_FALSE(r.LastIsRelay());
  CHECK(r.LastPrefillWorker() == kHead);  // kHead has its slice
  CHECK(r.Cancelled().size() == 3);
  r.Advance(absl::Seconds(1));
  CHECK(r.GivenUp() == 1);
  CHECK(r.Sent<PrefillRequest>().size() == 1);
  FinishSecondAttempt(&r, r.id, 100, kHead);
  CHECK(r.End(r.id).timeline.attempts == 2);
}

TEST_CASE("a late relay goes on while one worker would not be sooner") {
  LateRelay r;
  const std::vector<Incarnation> workers = {kDecode1, kTail, kHead};
  SECTION("its token is there") { REQUIRE(r.Report(kTail, {Token(r.id, 100, 7)}).ok()); }
  SECTION("the workers have much to do") {
    std::vector<RequestId> others;
    for (int i = 0; i < 60; ++i) others.push_back(r.Submit(39, 3));
    r.sent.clear();
    r.AdvanceWith(absl::Seconds(2), workers);
    CHECK(r.GivenUp() == 0);
    for (const RequestId other : others) r.Cancel(other);
    r.sent.clear();
    r.IsIdle();
    r.AdvanceWith(absl::Seconds(3), workers);
    CHECK(r.GivenUp() == 1);  // now one would be
    r.Cancel(r.id);
    return;
  }
  r.AdvanceWith(absl::Seconds(5), workers);
  CHECK(r.GivenUp() == 0);
  CHECK(r.sent.empty());
  r.Cancel(r.id);
}

}  // namespace
}  // namespace baton
