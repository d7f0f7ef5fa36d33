// The router's records of a request's attempts: who worked when, and why one was given up.
#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Kind = WorkSpan::Kind;

constexpr absl::Duration kMs = absl::Milliseconds(1);

void CheckSpan(const WorkSpan& span, Kind kind, Incarnation worker, absl::Duration begin,
               absl::Duration end) {
  CHECK(span.kind == kind);
  CHECK(span.worker == Announce(worker, Role::kBoth).name);
  CHECK(span.begin == begin);
  CHECK(span.end == end);
}

}  // namespace

TEST_CASE("a request's work is recorded with its workers, from its submission on") {
  PairHarness r(RouterOptions{.local = false});
  const RequestId id = r.Submit(20, 2);
  r.now += 10 * kMs;
  REQUIRE(r.Report(kP1, {PromptComputed{
                             .request_id = id, .epoch = 1, .queue_us = 3000, .compute_us = 5000},
                         Token(id, 20, 7)})
              .ok());
  const std::optional<RequestView> progress = r.router.Progress(id, r.now);
  REQUIRE(progress);
  CHECK_FALSE(progress->waits);
  CHECK(progress->n_tokens == 1);
  CHECK(progress->timeline.records.size() == 1);
  REQUIRE(r.Report(kP1, {Ended(id, true)}).ok());
  r.now += 10 * kMs;
  REQUIRE(r.Report(kD1, {Token(id, 21, 8), Ended(id, false)}).ok());
  CHECK_FALSE(r.router.Progress(id, r.now));

  const std::vector<AttemptRecord>& records = r.End(id).timeline.records;
  REQUIRE(records.size() == 1);
  CHECK(records[0].number == 1);
  CHECK(records[0].sent == absl::ZeroDuration());
  CHECK(records[0].cause == -1);
  const std::vector<WorkSpan>& spans = records[0].spans;
  REQUIRE(spans.size() == 5);
  CheckSpan(spans[0], Kind::kPrefill, kP1, 5 * kMs, 10 * kMs);
  CheckSpan(spans[1], Kind::kPrefillQueue, kP1, 2 * kMs, 5 * kMs);
  CheckSpan(spans[2], Kind::kDecode, kD1, 18 * kMs, 20 * kMs);
  CheckSpan(spans[3], Kind::kDecodeQueue, kD1, 17 * kMs, 18 * kMs);
  CheckSpan(spans[4], Kind::kTransfer, kD1, 16.5 * kMs, 17 * kMs);
}

TEST_CASE(
    "stages of the first token are told by the worker, and the wire is what is left between") {
  PairHarness r(RouterOptions{.local = false});
  const RequestId id = r.Submit(20, 2);
  r.now += 20 * kMs;
  REQUIRE(r.Report(kP1, {PromptComputed{.request_id = id,
                                        .epoch = 1,
                                        .queue_us = 3000,
                                        .compute_us = 5000,
                                        .inbox_us = 1000,
                                        .draw_us = 2000},
                         Token(id, 20, 7)})
              .ok());
  const std::optional<RequestView> progress = r.router.Progress(id, r.now);
  REQUIRE(progress);
  const Timeline& timeline = progress->timeline;
  CHECK(timeline.inbox == 1 * kMs);
  CHECK(timeline.draw == 2 * kMs);
  CHECK(timeline.wire == 9 * kMs);
  CHECK(timeline.queue_to_first + timeline.wire + timeline.inbox + timeline.prefill_queue_to_first +
            timeline.prefill_to_first + timeline.draw ==
        timeline.ttft);
  const std::vector<WorkSpan>& spans = timeline.records.at(0).spans;
  REQUIRE(spans.size() == 2);
  CheckSpan(spans[0], Kind::kPrefill, kP1, 13 * kMs, 18 * kMs);  // before the token was drawn
  CheckSpan(spans[1], Kind::kPrefillQueue, kP1, 10 * kMs, 13 * kMs);
}

TEST_CASE("an attempt has a handoff if another worker decodes, and one cut off tells no transfer") {
  RouterHarness local;
  local.Join(1, Role::kBoth);
  const RequestId alone = local.Submit(20, 2);
  REQUIRE(local
              .Report(1, {Token(alone, 20, 7), Ended(alone, true), Token(alone, 21, 8),
                          Ended(alone, false)})
              .ok());
  CHECK_FALSE(local.End(alone).timeline.has_handoff);

  PairHarness r(RouterOptions{.local = false});
  const RequestId one_token = r.Submit(20, 1);
  REQUIRE(r.Report(kP1, {Token(one_token, 20, 7), Ended(one_token, true)}).ok());
  CHECK_FALSE(r.End(one_token).timeline.has_handoff);
  for (const EndReason reason : {EndReason::kCancelled, EndReason::kLength}) {
    const RequestId id = r.Submit(20, 3);
    REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true, reason)}).ok());
    const std::optional<RequestView> progress = r.router.Progress(id, r.now);
    REQUIRE(progress);
    CHECK(progress->timeline.has_handoff);
    CHECK(progress->timeline.exposed_transfer.has_value() == (reason == EndReason::kLength));
    r.Cancel(id);
  }
}

TEST_CASE("an attempt that was given up says why, when and whose fault it was") {
  PairHarness r(RouterOptions{.local = false});
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 3);
  const Incarnation lost = r.LastDecodeWorker(), other = lost == kD1 ? kD2 : kD1;
  REQUIRE(r.Report(kP1, {Token(id, 20, 7)}).ok());
  r.now += 4 * kMs;
  r.Lose(lost);
  CHECK(r.LastDecodeWorker() == other);
  const std::vector<AttemptRecord> records = r.router.Progress(id, r.now)->timeline.records;
  REQUIRE(records.size() == 2);
  CHECK(records[0].cause == static_cast<int>(FailoverCause::kWorkerLost));
  CHECK(records[0].failed_worker == Announce(lost, Role::kDecode).name);
  CHECK(records[0].failure == "decode worker " + records[0].failed_worker + " was lost");
  CHECK(records[0].given_up == 4 * kMs);
  CHECK(records[1].number == 2);
  CHECK(records[1].sent == 4 * kMs);
  CHECK(records[1].cause == -1);
}

TEST_CASE("of a request that is dispatched without end the last attempts are kept") {
  PairHarness r(RouterOptions{.max_lost_attempts = 100, .worker_wait = absl::Hours(1)});
  const RequestId id = r.Submit(20, 3);
  for (int i = 0; i < 40; ++i) {
    r.Lose(kD1);
    r.Lose(kP1);
    r.Join(kP1, Role::kPrefill);
    r.Join(kD1, Role::kDecode);
  }
  const std::vector<AttemptRecord> records = r.router.Progress(id, r.now)->timeline.records;
  CHECK(records.size() == AttemptRecord::kMax);
  CHECK(records.back().number > 40);
}

TEST_CASE("links are told with the rates that workers measured, of workers that are here") {
  PairHarness r(RouterOptions{.local = false});
  REQUIRE(r.Report(kP1, {WorkerLoad{.pages_free = 900,
                                    .links = {{.peer = kD1, .bytes_per_second = 1e9},
                                              {.peer = kD2, .bytes_per_second = 5e8}}}})
              .ok());
  const auto links = [&] {
    for (const WorkerView& worker : r.router.Workers())
      if (worker.incarnation == kP1) return worker.links;
    return std::vector<LinkView>();
  };
  REQUIRE(links().size() == 1);
  CHECK(links()[0].peer == Announce(kD1, Role::kDecode).name);
  CHECK(links()[0].bytes_per_second == 1e9);
  CHECK(links()[0].tokens_under_way == 0);
  r.Submit(20, 3);
  CHECK(links()[0].tokens_under_way == 20);
}

}  // namespace baton
