// Relays whose link becomes slow under way: the test of whether a new dispatch pays, and its limit
// of one per request.
#include "router/relay_watch.h"

#include "tests/router/relay_harness.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr int64_t kMega = 1'000'000;

TEST_CASE("the slowest hop is left if it keeps the relay half as long again as one worker takes") {
  const absl::Duration alone = absl::Seconds(2);
  std::vector<HopProgress> hops = {
      {.bytes = 10 * kMega, .crossed = 10 * kMega, .bytes_per_second = 1},
      {.bytes = 10 * kMega, .crossed = 4 * kMega, .bytes_per_second = 2e6},
      {.bytes = 90 * kMega, .crossed = 0, .bytes_per_second = 0}};  // an unknown link
  CHECK(TimeLeft(hops[0]) == absl::ZeroDuration());
  CHECK(TimeLeft(hops[1]) == absl::Seconds(3));
  CHECK_FALSE(HopToLeave(hops, alone));
  hops[1].bytes_per_second = 1.9e6;
  CHECK(HopToLeave(hops, alone) == 1);
  hops[0] = {.bytes = 10 * kMega, .crossed = 0, .bytes_per_second = 1e5};
  CHECK(HopToLeave(hops, alone) == 0);
  // The link is shared: more than the relay's own KV has crossed.
  hops = {{.bytes = kMega, .crossed = 2 * kMega, .bytes_per_second = 1}};
  CHECK_FALSE(HopToLeave(hops, alone));
  CHECK_FALSE(HopToLeave({}, alone));
}

// 48 tokens cross from the head to the tail, 8 KiB each.
constexpr int64_t kHopBytes = int64_t{48} * 4 * 2048;

WorkerLoad LoadWith(double bytes_per_second, int64_t chain_bytes) {
  WorkerLoad load = MeasuredLoad(1000);
  load.links = {{.peer = kTail, .bytes_per_second = bytes_per_second, .chain_bytes = chain_bytes}};
  return load;
}

struct SlowChain : RelayHarness {
  SlowChain() {
    for (const Incarnation worker : {kDecode1, kTail})
      REQUIRE(Report(worker, {MeasuredLoad(1000)}).ok());
    REQUIRE(Report(kHead, {LoadWith(1e9, kEarlier)}).ok());
    id = Submit(100, 3);
    REQUIRE(LastIsRelay());
    REQUIRE(LastPrefill().tokens.size() == 48);
    sent.clear();
  }
  uint64_t SlowLinks() const {
    return router.View().failovers[static_cast<size_t>(FailoverCause::kSlowLink)];
  }
  static constexpr int64_t kEarlier = 5 * kMega;  // bytes of earlier relays
  RequestId id = 0;
};

TEST_CASE("a relay whose link falls to a hundredth under way goes on at one worker, once") {
  SlowChain r;
  r.Advance(absl::Milliseconds(50));
  REQUIRE(r.Report(kHead, {LoadWith(1e5, SlowChain::kEarlier + kHopBytes / 10)}).ok());
  CHECK(r.sent.empty());  // not late yet
  r.Advance(absl::Milliseconds(300));
  CHECK(r.SlowLinks() == 1);
  const auto prefills = r.Sent<PrefillRequest>();
  REQUIRE(prefills.size() == 1);
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(LastSlice(r.LastPrefill()).inflow == TicketId{});
  CHECK_FALSE(r.LastIsRelay());
  CHECK(r.LastPrefillWorker() == kHead);  // kHead has its slice
  CHECK(r.Cancelled().size() == 3);
  r.Advance(absl::Seconds(1));
  CHECK(r.SlowLinks() == 1);
  CHECK(r.Sent<PrefillRequest>().size() == 1);
  REQUIRE(r.Report(kHead, {Token(r.id, 100, 7, 2), Ended(r.id, true, EndReason::kLength, 2)}).ok());
  REQUIRE(r.Report(kDecode1, {Token(r.id, 101, 8, 2), Token(r.id, 102, 9, 2),
                              Ended(r.id, false, EndReason::kLength, 2)})
              .ok());
  CHECK(r.tokens[r.id] == std::vector<int32_t>{7, 8, 9});
  CHECK(r.End(r.id).timeline.attempts == 2);
}

TEST_CASE("a relay that is late for other reasons than its links goes on") {
  SlowChain r;
  r.Advance(absl::Milliseconds(50));
  SECTION("its links are as they were") {
    REQUIRE(r.Report(kHead, {LoadWith(1e9, SlowChain::kEarlier)}).ok());
  }
  SECTION("all has crossed") {
    REQUIRE(r.Report(kHead, {LoadWith(1e5, SlowChain::kEarlier + kHopBytes)}).ok());
  }
  SECTION("what is left is soon there") {
    REQUIRE(r.Report(kHead, {LoadWith(1e5, SlowChain::kEarlier + kHopBytes - 1000)}).ok());
  }
  SECTION("nothing was measured") { REQUIRE(r.Report(kHead, {MeasuredLoad(1000)}).ok()); }
  SECTION("its token is there") {
    REQUIRE(r.Report(kTail, {Token(r.id, 100, 7)}).ok());
    REQUIRE(r.Report(kHead, {LoadWith(1e5, SlowChain::kEarlier)}).ok());
  }
  r.AdvanceWith(absl::Seconds(10), {kDecode1, kTail, kHead});
  CHECK(r.SlowLinks() == 0);
  CHECK(r.sent.empty());
  r.Cancel(r.id);
}

// The rest takes 2 s on the link and 52 ms on one worker, but for 2 s no worker has made progress.
TEST_CASE("where everything is late, a link that looks slow is not left") {
  SlowChain r;
  r.AdvanceWith(absl::Seconds(2), {kDecode1, kTail, kHead});
  REQUIRE(r.Report(kHead, {LoadWith(2e5, SlowChain::kEarlier)}).ok());
  r.AdvanceWith(absl::Seconds(5), {kDecode1, kTail, kHead});
  CHECK(r.SlowLinks() == 0);
  CHECK(r.sent.empty());
  REQUIRE(r.Report(kHead, {LoadWith(1e3, SlowChain::kEarlier)}).ok());
  r.AdvanceWith(absl::Seconds(5), {kDecode1, kTail, kHead});
  CHECK(r.SlowLinks() == 1);  // 400 s
  r.Cancel(r.id);
}

}  // namespace
}  // namespace baton
