// Links between workers that broke: alone for a while, tried by one request, whole again.
#include "router/broken_links.h"

#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Sinks = std::vector<Incarnation>;

constexpr Incarnation kSource = 7, kSink = 3;
constexpr absl::Time kStart = absl::UnixEpoch();

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

PartEnded HandoffFailed(RouterHarness& r, RequestId id, Epoch epoch) {
  PartEnded ended = Ended(id, true, EndReason::kFailed, epoch);
  ended.fault = PartFault::kHandoff;
  ended.ticket_id = r.LastPrefill().slices.back().outputs.back().ticket.id;
  return ended;
}

}  // namespace

TEST_CASE(
    "a broken link is left alone, tried by one request, and longer alone if that is in vain") {
  BrokenLinks links;
  CHECK(links.OnBroken(kSource, kSink, At(0)) == absl::Seconds(5));
  CHECK(links.From(kSource, At(4.9)) == Sinks{kSink});
  CHECK(links.From(kSink, At(1)).empty());  // the other way is another link
  // Requests that were on their way tell nothing new, and nobody tries yet.
  CHECK_FALSE(links.OnBroken(kSource, kSink, At(4)));
  links.OnUsed(kSource, kSink, At(4));
  CHECK(links.From(kSource, At(5)).empty());

  links.OnUsed(kSource, kSink, At(6));
  CHECK(links.From(kSource, At(6)) == Sinks{kSink});
  CHECK(links.OnBroken(kSource, kSink, At(10)) == absl::Seconds(10));
  CHECK(links.From(kSource, At(19.9)) == Sinks{kSink});
  double now = 20;
  for (const double pause : {20, 40, 60, 60}) {
    links.OnUsed(kSource, kSink, At(now));
    CHECK(links.OnBroken(kSource, kSink, At(now)) == absl::Seconds(pause));
    now += pause;
  }
  // A request that tries and never tells is followed by another one.
  links.OnUsed(kSource, kSink, At(now));
  CHECK(links.From(kSource, At(now + 14.9)) == Sinks{kSink});
  CHECK(links.From(kSource, At(now + 15)).empty());
}

TEST_CASE("a link is whole again once KV came over it or one of its workers left") {
  BrokenLinks links;
  for (const Incarnation sink : {kSink + 1, kSink}) links.OnBroken(kSource, sink, At(0));
  CHECK(links.From(kSource, At(0)) == Sinks{kSink, kSink + 1});
  links.OnWhole(kSource, kSink);
  CHECK(links.From(kSource, At(0)) == Sinks{kSink + 1});
  CHECK(links.size() == 1);
  links.Leave(kSink + 1);
  CHECK(links.size() == 0);
  links.OnBroken(kSource, kSink, At(0));
  links.Leave(kSource);
  CHECK(links.size() == 0);
}

TEST_CASE("requests after a broken handoff take another pair until one finds the link whole") {
  PairHarness r(RouterOptions{.local = false});
  r.Join(kD2, Role::kDecode);
  const RequestId first = r.Submit(20, 4);
  const Incarnation cut = r.LastDecodeWorker();
  REQUIRE(r.Report(kP1, {HandoffFailed(r, first, 1)}).ok());
  const Incarnation other = r.LastDecodeWorker();
  REQUIRE(other != cut);
  // Without the record the least recently chosen worker, which is that of the cut, has every second
  // one.
  for (int i = 0; i < 6; ++i) {
    r.Cancel(r.Submit(20, 4));
    CHECK(r.LastDecodeWorker() == other);
  }
  CHECK(r.router.View().broken_links == 1);

  for (int second = 0; second < 5; ++second) {
    r.Advance(absl::Seconds(1));
    for (const Incarnation worker : {kP1, kD1, kD2}) REQUIRE(r.Report(worker, {}).ok());
  }
  const RequestId trial = r.Submit(20, 4);
  REQUIRE(r.LastDecodeWorker() == cut);
  r.Cancel(r.Submit(20, 4));
  CHECK(r.LastDecodeWorker() == other);  // one tries
  REQUIRE(r.Report(kP1, {Token(trial, 20, 7)}).ok());
  REQUIRE(r.Report(cut, {Token(trial, 21, 8)}).ok());
  CHECK(r.router.View().broken_links == 0);
  r.Cancel(trial);
  std::set<Incarnation> chosen;
  for (int i = 0; i < 2; ++i) {
    r.Cancel(r.Submit(20, 4));
    chosen.insert(r.LastDecodeWorker());
  }
  CHECK(chosen == std::set<Incarnation>{cut, other});
}

TEST_CASE("where every link is broken one worker does both") {
  PairHarness r;
  const RequestId first = r.Submit(20, 4);
  REQUIRE(r.LastPrefillWorker() != r.LastDecodeWorker());
  REQUIRE(r.Report(kP1, {HandoffFailed(r, first, 1)}).ok());
  r.Cancel(first);
  r.Cancel(r.Submit(20, 4));
  CHECK(r.LastPrefillWorker() == r.LastDecodeWorker());
}

}  // namespace baton
