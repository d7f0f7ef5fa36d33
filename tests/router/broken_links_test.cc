// Links between workers that broke: alone for a while, tried by one request, whole again.
#include "router/broken_links.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
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
  CHECK(links.From(kSource, true, At(4.9)) == Sinks{kSink});
  CHECK(links.From(kSink, true, At(1)).empty());  // the other way is another link
  // Requests that were on their way tell nothing new, and nobody tries yet.
  CHECK_FALSE(links.OnBroken(kSource, kSink, At(4)));
  links.OnUsed(kSource, kSink, At(4));
  CHECK(links.From(kSource, true, At(5)).empty());

  links.OnUsed(kSource, kSink, At(6));
  CHECK(links.From(kSource, true, At(6)) == Sinks{kSink});
  CHECK(links.OnBroken(kSource, kSink, At(10)) == absl::Seconds(10));
  CHECK(links.From(kSource, true, At(19.9)) == Sinks{kSink});
  double now = 20;
  for (const double pause : {20, 40, 60, 60}) {
    links.OnUsed(kSource, kSink, At(now));
    CHECK(links.OnBroken(kSource, kSink, At(now)) == absl::Seconds(pause));
    now += pause;
  }
  // A request that tries and never tells is followed by another one.
  links.OnUsed(kSource, kSink, At(now));
  CHECK(links.From(kSource, true, At(now + 14.9)) == Sinks{kSink});
  CHECK(links.From(kSource, true, At(now + 15)).empty());
}

TEST_CASE(
    "while a link is tried, others of its ends are left alone; they may be tried once it is "
    "whole") {
  BrokenLinks links;
  links.OnBroken(kSource, kSink, At(0));
  links.OnBroken(kSource, kSink + 1, At(0));
  links.OnBroken(kSource + 1, kSink, At(0));
  links.OnBroken(kSource + 1, kSink + 1, At(0));
  CHECK(links.From(kSource, true, At(5)).empty());
  links.OnUsed(kSource, kSink, At(5));
  CHECK(links.From(kSource, true, At(6)) == Sinks{kSink, kSink + 1});
  CHECK(links.From(kSource + 1, true, At(6)) == Sinks{kSink});
  CHECK(links.From(kSource + 1, false, At(6)) == Sinks{kSink, kSink + 1});  // who may not try
  CHECK(links.n_tried_in_vain() == 0);
  links.OnBroken(kSource, kSink, At(9));
  CHECK(links.n_tried_in_vain() == 1);
  CHECK(links.TriedInVainFrom(kSource) == Sinks{kSink});
  CHECK(links.TriedInVainFrom(kSource + 1).empty());
  links.OnUsed(kSource, kSink, At(30));
  links.OnWhole(kSource, kSink);
  CHECK(links.n_tried_in_vain() == 0);
  CHECK(links.TriedInVainFrom(kSource).empty());
  CHECK(links.From(kSource, true, At(30)).empty());
  CHECK(links.From(kSource, false, At(30)) == Sinks{kSink + 1});
}

TEST_CASE("a link is whole again once KV came over it or one of its workers left") {
  BrokenLinks links;
  for (const Incarnation sink : {kSink + 1, kSink}) links.OnBroken(kSource, sink, At(0));
  CHECK(links.From(kSource, false, At(0)) == Sinks{kSink, kSink + 1});
  links.OnWhole(kSource, kSink);
  CHECK(links.From(kSource, false, At(0)) == Sinks{kSink + 1});
  links.Leave(kSink + 1);
  CHECK(links.From(kSource, false, At(0)).empty());
  links.OnBroken(kSource, kSink, At(0));
  links.Leave(kSource);
  CHECK(links.From(kSource, false, At(0)).empty());
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
  r.Cancel(trial);
  std::set<Incarnation> chosen;
  for (int i = 0; i < 2; ++i) {
    r.Cancel(r.Submit(20, 4));
    chosen.insert(r.LastDecodeWorker());
  }
  CHECK(chosen == std::set<Incarnation>{cut, other});
}

TEST_CASE("a request that has lost an attempt tries no broken link") {
  PairHarness r(RouterOptions{.local = false});
  r.Join(kD2, Role::kDecode);
  r.Join(kP2, Role::kPrefill);
  const auto step = [&](int seconds) {
    for (int second = 0; second < seconds; ++second) {
      r.Advance(absl::Seconds(1));
      for (const Incarnation worker : {kP1, kP2, kD1, kD2}) REQUIRE(r.Report(worker, {}).ok());
    }
  };
  // Each pair breaks once; then all may be tried.
  std::set<std::pair<Incarnation, Incarnation>> broken;
  for (int i = 0; i < 20 && broken.size() < 4; ++i) {
    const RequestId id = r.Submit(20, 4);
    const Incarnation source = r.LastPrefillWorker();
    if (source != r.LastDecodeWorker()) {
      broken.emplace(source, r.LastDecodeWorker());
      REQUIRE(r.Report(source, {HandoffFailed(r, id, 1)}).ok());
    }
    r.Cancel(id);
  }
  REQUIRE(broken.size() == 4);
  step(6);
  const RequestId id = r.Submit(20, 4);
  const Incarnation source = r.LastPrefillWorker();
  REQUIRE(source != r.LastDecodeWorker());  // it tries
  const std::string sink = absl::StrCat("w", r.LastDecodeWorker());
  REQUIRE(r.Report(source, {HandoffFailed(r, id, 1)}).ok());
  CHECK(r.LastPrefillWorker() == r.LastDecodeWorker());
  CHECK(r.router.View().broken_links == 1);
  int n_broken = 0;
  for (const WorkerView& worker : r.router.Workers()) {
    for (const LinkView& link : worker.links) {
      n_broken += link.broken;
      CHECK(link.broken == (worker.incarnation == source && link.peer == sink));
    }
  }
  CHECK(n_broken == 1);
}

TEST_CASE("a long queue at the only whole link is worth a plan of one worker") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  const RequestId first = r.Submit(20, 4);
  const Incarnation cut = r.LastPrefillWorker(), whole = cut == kP1 ? kP2 : kP1;
  REQUIRE(r.Report(cut, {HandoffFailed(r, first, 1)}).ok());
  r.Cancel(first);
  for (const Incarnation worker : {cut, whole}) REQUIRE(r.Report(worker, {MeasuredLoad(100)}).ok());
  r.Submit(1000, 40);  // ten seconds; D1 has a row then, so that it is spared
  REQUIRE(r.LastPrefillWorker() == whole);
  REQUIRE(r.LastDecodeWorker() == kD1);
  r.Submit(1000, 4);
  CHECK(r.LastPrefillWorker() != whole);
  CHECK(r.LastDecodeWorker() == r.LastPrefillWorker());
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
