// Workers that live while their engines stand still: what they get, when their requests go on
// elsewhere, what is no stand-still, and how a worker comes back.
#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr absl::Duration kSign = absl::Milliseconds(400);

struct TwoPairs : RouterHarness {
  explicit TwoPairs(const RouterOptions& options = {}) : RouterHarness(options) {
    for (const Incarnation worker : workers) Join(worker, RoleOf(worker));
  }
  // All workers report for a while; these stand still in a turn that should take so long.
  void Live(absl::Duration duration, const std::vector<Incarnation>& standing = {},
            absl::Duration expected = absl::ZeroDuration()) {
    for (const absl::Time end = now + duration; now < end;) {
      Advance(std::min(end - now, kSign));
      for (const Incarnation worker : workers) {
        if (router_lost.contains(worker)) continue;
        EngineTurn& turn = engines[worker];
        const bool stands = std::find(standing.begin(), standing.end(), worker) != standing.end();
        if (!stands) {
          turn = {.turns = turn.turns + 1};
        } else {
          turn.age_us += absl::ToInt64Microseconds(kSign);
          turn.expected_us = absl::ToInt64Microseconds(expected);
        }
        const size_t n_closed = closed.size();
        REQUIRE(Report(worker, {}).ok());
        if (closed.size() > n_closed) router_lost.insert(worker);
      }
    }
  }
  WorkerView View(Incarnation worker) const {
    for (const WorkerView& view : router.Workers())
      if (view.name == "w" + std::to_string(worker)) return view;
    return {};
  }
  // The decode workers of four short requests, which are cancelled again.
  std::set<Incarnation> Chosen() {
    std::set<Incarnation> chosen;
    for (int i = 0; i < 4; ++i) {
      const RequestId id = Submit(20, 4);
      chosen.insert(LastDecodeWorker());
      Cancel(id);
    }
    return chosen;
  }
  static Role RoleOf(Incarnation worker) { return worker < kD1 ? Role::kPrefill : Role::kDecode; }

  const std::vector<Incarnation> workers = {kP1, kP2, kD1, kD2};
  std::set<Incarnation> router_lost;  // streams that the router closed
};

}  // namespace

TEST_CASE("an engine that stands still: nothing new for its worker, then its requests go on") {
  TwoPairs r;
  const RequestId id = r.Submit(20, 4);
  const Incarnation standing = r.LastDecodeWorker(), source = r.LastPrefillWorker();
  const Incarnation other = standing == kD1 ? kD2 : kD1;
  REQUIRE(r.Report(source, {Token(id, 20, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(standing, {Token(id, 21, 8)}).ok());
  const absl::Time stood_since = r.now;
  r.Live(absl::Milliseconds(1900), {standing});
  CHECK(r.router.View().standing_workers == 0);
  r.Live(absl::Milliseconds(500), {standing});
  CHECK(r.router.View().standing_workers == 1);
  CHECK(r.View(standing).standing);
  CHECK(r.View(standing).requests == 1);
  CHECK(r.Chosen() == std::set<Incarnation>{other});
  CHECK(r.closed.empty());
  while (r.closed.empty()) r.Live(kSign, {standing});
  CHECK(r.now - stood_since <= absl::Milliseconds(4800));
  CHECK(r.closed[0].worker == standing);
  CHECK_THAT(std::string(r.closed[0].reason.message()),
             Catch::Contains("its engine has been in one turn for 4."));
  // The other worker computes what is there, and goes on after it: the same tokens.
  CHECK(r.LastDecodeWorker() == other);
  CHECK(r.LastPrefill().tokens.size() == 22);
  CHECK(r.router.View().failovers[static_cast<int>(FailoverCause::kWorkerLost)] == 1);

  // The worker dials again while it stands still: it is there, and gets nothing.
  r.Lose(standing);
  r.router_lost.clear();
  r.Join(standing, Role::kDecode);
  CHECK(r.View(standing).standing);
  CHECK(r.Chosen() == std::set<Incarnation>{other});
  r.Live(absl::Seconds(60), {standing});
  CHECK(r.closed.size() == 1);  // nobody waits for it
  r.Live(kSign);
  CHECK_FALSE(r.View(standing).standing);
  CHECK(r.Chosen() == std::set<Incarnation>{kD1, kD2});
  r.Cancel(id);
}

TEST_CASE("a step that should take long is no stand-still until three times as long has passed") {
  TwoPairs r;
  r.Live(absl::Milliseconds(8800), {kD1}, absl::Seconds(3));
  CHECK(r.router.View().standing_workers == 0);
  r.Live(absl::Milliseconds(800), {kD1}, absl::Seconds(3));
  CHECK(r.router.View().standing_workers == 1);
}

TEST_CASE("an idle engine does not stand still, nor one in the next turn") {
  TwoPairs r;
  r.Live(absl::Minutes(10));
  CHECK(r.router.View().standing_workers == 0);
  for (uint64_t turn = 100; turn < 110; ++turn) {
    r.engines[kD1] = {.turns = turn};
    r.Live(absl::Milliseconds(1900), {kD1});
    CHECK(r.router.View().standing_workers == 0);
  }
}

TEST_CASE("a machine that was stopped is no reason to give its engines up") {
  TwoPairs r(RouterOptions{.worker_silence = absl::Minutes(10)});
  const RequestId id = r.Submit(20, 4);
  r.Live(absl::Seconds(1), {kP1, kP2, kD1, kD2});
  r.now += absl::Minutes(5);
  for (const Incarnation worker : r.workers) r.engines[worker].age_us += 300'000'000;
  r.Live(kSign, {kP1, kP2, kD1, kD2});  // the turns of before
  CHECK(r.closed.empty());
  r.Live(kSign);
  CHECK(r.router.View().standing_workers == 0);
  CHECK(r.router.View().failovers[static_cast<int>(FailoverCause::kWorkerLost)] == 0);
  r.Cancel(id);
}

TEST_CASE("when all engines stand still, requests wait for the first that turns again") {
  TwoPairs r;
  r.Live(absl::Seconds(3), {kP1, kP2, kD1, kD2});
  CHECK(r.router.View().standing_workers == 4);
  CHECK(r.router.View().prefill_workers == 0);
  const RequestId id = r.Submit(20, 4);
  CHECK(r.router.View().waiting == 1);
  r.Live(kSign, {kP1, kD1, kD2});
  CHECK(r.router.View().waiting == 0);
  CHECK(r.LastPrefillWorker() == kP2);
  r.Cancel(id);
}

TEST_CASE("a worker that drains is given up, too, when its engine stands still") {
  TwoPairs r;
  const RequestId id = r.Submit(20, 4);
  const Incarnation leaving = r.LastDecodeWorker();
  REQUIRE(r.Report(leaving, {WorkerLoad{.draining = true}}).ok());
  r.Live(absl::Seconds(5), {leaving});
  REQUIRE(r.closed.size() == 1);
  CHECK(r.closed[0].worker == leaving);
  CHECK(r.LastDecodeWorker() != leaving);
  r.Cancel(id);
}

}  // namespace baton
