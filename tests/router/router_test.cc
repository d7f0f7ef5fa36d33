// One rule of the router per case, with hand-written worker reports.
#include "router/router.h"

#include <catch2/catch.hpp>

#include "tests/support/prefill_parts.h"
#include "tests/support/router_harness.h"

namespace baton {

TEST_CASE("a prompt computed by a worker that was not asked is a protocol violation") {
  PairHarness r;
  const RequestId id = r.Submit(20, 3);
  CHECK_FALSE(r.Report(kD1, {PromptComputed{.request_id = id, .epoch = 1}}).ok());
  PairHarness other;
  const RequestId id2 = other.Submit(20, 3);
  CHECK_FALSE(other.Report(kP1, {PromptComputed{.request_id = id2, .epoch = 2}}).ok());
}

// No two clocks need to agree, and that of the router may be any.
TEST_CASE("a ticket's limit is an hour from now on the clock of the worker that takes it") {
  constexpr int64_t kHourUs = 3'600'000'000;
  RouterHarness r;
  r.Join(kP1, Role::kPrefill);
  WorkerAnnounce decode = Announce(kD1, Role::kDecode);
  decode.clock_us = 7'000'000;
  REQUIRE(r.Report(kD1, {decode}).ok());
  r.now += absl::Seconds(2);
  r.Submit(20, 3);
  CHECK(TicketOf(r.Sent<PrefillRequest>().at(0).second).expires_us == 9'000'000 + kHourUs);
  // The worker's machine was suspended: its clock stood still, and its next report says so.
  WorkerLoad load = MeasuredLoad(1'000);
  load.clock_us = 7'500'000;
  REQUIRE(r.Report(kD1, {load}).ok());
  r.now += absl::Seconds(1);
  r.Submit(20, 3);
  CHECK(TicketOf(r.Sent<PrefillRequest>().at(1).second).expires_us == 8'500'000 + kHourUs);
}

TEST_CASE("a request goes to both workers at once and ends with its last token") {
  PairHarness r;
  const RequestId id = r.Submit(20, 3);
  REQUIRE(r.sent.size() == 2);
  const auto [decode_worker, decode] = r.Sent<DecodeRequest>().at(0);
  const auto [prefill_worker, prefill] = r.Sent<PrefillRequest>().at(0);
  CHECK(std::holds_alternative<DecodeRequest>(r.sent[0].second));
  CHECK(prefill_worker == kP1);
  CHECK(decode_worker == kD1);
  CHECK(prefill.request_id == id);
  CHECK(prefill.epoch == 1);
  CHECK(prefill.tokens.size() == 20);
  CHECK(prefill.sampling.seed == 5);
  CHECK(MainOf(prefill).peer == Announce(kD1, Role::kDecode).transfer);
  CHECK(VerifyTicket(TestKey(), TicketOf(prefill)));
  CHECK(TicketOf(prefill).source == kP1);
  CHECK(TicketOf(prefill).sink == kD1);
  CHECK(TicketOf(prefill).request_id == id);
  CHECK(TicketOf(prefill).epoch == 1);
  CHECK(TicketOf(prefill).kv_pages == 2);
  CHECK(TicketOf(prefill).promise_pages == 2);
  CHECK(TicketOf(prefill).id == decode.ticket_id);
  CHECK(decode.tokens.size() == 20);
  CHECK(decode.max_tokens == 3);
  CHECK(r.router.View().running == 1);

  r.now += absl::Milliseconds(30);
  const PromptComputed computed{.request_id = id, .epoch = 1, .queue_us = 3000, .compute_us = 4000};
  REQUIRE(r.Report(kP1, {computed, Token(id, 20, 7)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7});
  REQUIRE(r.Report(kP1, {Ended(id, true)}).ok());
  REQUIRE(r.Report(kD1, {Token(id, 21, 8)}).ok());
  CHECK_FALSE(r.Ended(id));
  r.now += absl::Milliseconds(20);
  REQUIRE(r.Report(kD1, {Token(id, 22, 9), Ended(id, false)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8, 9});
  const EmitEnd& end = r.End(id);
  CHECK(end.reason == EndReason::kLength);
  CHECK(end.status.ok());
  CHECK(end.timeline.ttft == absl::Milliseconds(30));
  CHECK(end.timeline.total == absl::Milliseconds(50));
  CHECK(end.timeline.prefill_queue == absl::Milliseconds(3));
  CHECK(end.timeline.prefill == absl::Milliseconds(4));
  CHECK(end.timeline.transfer == absl::Microseconds(500));
  CHECK(end.timeline.decode_queue == absl::Milliseconds(1));
  CHECK(end.timeline.decode == absl::Milliseconds(2));
  CHECK(end.timeline.unaccounted() == absl::Milliseconds(40));
  CHECK(end.timeline.prefill_queue_to_first == absl::Milliseconds(3));
  CHECK(end.timeline.prefill_to_first == absl::Milliseconds(4));
  CHECK(end.timeline.exposed_transfer == absl::Microseconds(300));
  CHECK(end.timeline.first_decode_step == absl::Microseconds(700));
  CHECK(end.timeline.prefill_worker == "w11");
  CHECK(end.timeline.decode_worker == "w21");
  CHECK(end.timeline.attempts == 1);
  CHECK(r.sent.size() == 2);  // nothing to cancel
  CheckIdle(r);
}

TEST_CASE("tokens come out by position whichever stream is faster") {
  PairHarness r;
  const RequestId id = r.Submit(20, 4);
  REQUIRE(r.Report(kD1, {Token(id, 22, 9), Token(id, 21, 8)}).ok());
  CHECK(r.tokens[id].empty());
  REQUIRE(r.Report(kD1, {Token(id, 23, 10), Token(id, 21, 8), Ended(id, false)}).ok());
  CHECK(r.tokens[id].empty());
  CHECK_FALSE(r.Ended(id));
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8, 9, 10});
  CHECK(r.End(id).reason == EndReason::kLength);
  CheckIdle(r);
}

TEST_CASE("a preempted request goes on with its tokens; the fourth attempt is promised all pages") {
  PairHarness r;
  const RequestId id = r.Submit(20, 100);
  int32_t position = 20;
  for (Epoch epoch = 1; epoch <= 4; ++epoch) {
    const PrefillRequest prefill = r.LastPrefill();
    CHECK(prefill.epoch == epoch);
    REQUIRE(prefill.tokens.size() == static_cast<size_t>(position));
    CHECK(TicketOf(prefill).promise_pages == (epoch < 4 ? TicketOf(prefill).kv_pages + 1 : 8));
    REQUIRE(r.Report(r.LastPrefillWorker(), {Token(id, position, 1, epoch)}).ok());
    ++position;
    if (epoch == 4) break;
    REQUIRE(r.Report(r.LastDecodeWorker(), {Token(id, position, 1, epoch),
                                            Ended(id, false, EndReason::kPreempted, epoch)})
                .ok());
    ++position;
  }
  CHECK(r.tokens[id].size() == 7);
  CHECK_FALSE(r.Ended(id));
  const PartEnded wrong = Ended(id, true, EndReason::kPreempted, 4);
  CHECK(r.Report(r.LastPrefillWorker(), {wrong}).message() ==
        "a prefill part does not end preempted");
}

TEST_CASE("a preemption counts once, whatever its attempt still tells while no worker is there") {
  RouterHarness r;
  r.Join(1, Role::kBoth);
  const RequestId id = r.Submit(20, 100);
  int32_t position = 20;
  for (Epoch epoch = 1; epoch <= 2; ++epoch) {
    REQUIRE(r.Report(epoch, {WorkerLoad{.draining = true}, Token(id, position++, 1, epoch)}).ok());
    REQUIRE(r.Report(epoch, {Ended(id, false, EndReason::kPreempted, epoch)}).ok());
    REQUIRE(r.router.View().waiting == 1);
    REQUIRE(r.Report(epoch, {Ended(id, true, EndReason::kCancelled, epoch)}).ok());
    r.Join(epoch + 1, Role::kBoth);
  }
  // The third attempt is not promised all pages yet.
  CHECK(r.LastPrefill().epoch == 3);
  CHECK(TicketOf(r.LastPrefill()).promise_pages == TicketOf(r.LastPrefill()).kv_pages + 1);
}

TEST_CASE("a token told twice comes out once") {
  PairHarness r;
  const RequestId id = r.Submit(20, 4);
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Token(id, 20, 7)}).ok());
  REQUIRE(r.Report(kD1, {Token(id, 20, 7), Token(id, 21, 8), Token(id, 21, 8)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8});
}

TEST_CASE("tokens that an earlier attempt told early are forgotten with it") {
  PairHarness r;
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation first = r.LastDecodeWorker();
  REQUIRE(r.Report(first, {Token(id, 21, 99), Token(id, 22, 99)}).ok());
  r.Lose(first);
  REQUIRE(r.Report(kP1, {Token(id, 20, 7, 2)}).ok());
  REQUIRE(r.Report(r.LastDecodeWorker(), {Token(id, 21, 8, 2)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8});
}

TEST_CASE("one token is prefill alone") {
  PairHarness r;
  const RequestId id = r.Submit(20, 1);
  CHECK(r.Sent<DecodeRequest>().empty());
  CHECK(MainOf(r.LastPrefill()).peer.incarnation == 0);
  CHECK(TicketOf(r.LastPrefill()).sink == 0);
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  CHECK(r.End(id).reason == EndReason::kLength);
  CHECK(r.Sent<CancelRequest>().empty());
  CheckIdle(r);
}

TEST_CASE("a prompt may fill the context if nothing follows its first token") {
  PairHarness r;
  const RequestId id = r.Submit(2048, 1);
  REQUIRE(r.Report(kP1, {Token(id, 2048, 7), Ended(id, true)}).ok());
  CHECK(r.End(id).reason == EndReason::kLength);
  GenerateRequest request;
  request.prompt.assign(2048, 5);
  request.max_tokens = 2;
  CHECK_FALSE(r.router.Submit(request, r.now).ok());
}

TEST_CASE("a first token that stops the request cancels its decode part") {
  PairHarness r;
  const RequestId id = r.Submit(20, 5, {7});
  REQUIRE(r.Report(kP1, {Token(id, 20, 7)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7});
  CHECK(r.End(id).reason == EndReason::kStopToken);
  const auto cancels = r.Sent<CancelRequest>();
  REQUIRE(cancels.size() == 2);
  CHECK(cancels[0].first == kD1);
  CHECK(cancels[1].first == kP1);
  CHECK(cancels[0].second.epoch == 1);
  // Later reports of the workers have no effect.
  REQUIRE(r.Report(kD1, {Token(id, 21, 8), Ended(id, false, EndReason::kCancelled)}).ok());
  REQUIRE(r.Report(kP1, {Ended(id, true, EndReason::kFailed)}).ok());
  CheckIdle(r);
}

TEST_CASE("a stop token of the decode worker ends the request") {
  PairHarness r;
  const RequestId id = r.Submit(20, 5, {8});
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(kD1, {Token(id, 21, 8), Ended(id, false, EndReason::kStopToken)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8});
  CHECK(r.End(id).reason == EndReason::kStopToken);
}

TEST_CASE("a colocated worker gets both parts with itself as sink") {
  RouterHarness r;
  r.Join(1, Role::kBoth);
  r.Join(2, Role::kBoth);
  const RequestId a = r.Submit(20, 5), b = r.Submit(20, 5);
  const auto prefills = r.Sent<PrefillRequest>();
  const auto decodes = r.Sent<DecodeRequest>();
  REQUIRE(prefills.size() == 2);
  REQUIRE(decodes.size() == 2);
  CHECK(prefills[0].first == decodes[0].first);
  CHECK(MainOf(prefills[0].second).peer.incarnation == prefills[0].first);
  CHECK(prefills[0].first != prefills[1].first);  // the second request goes to the idle worker
  r.Cancel(a);
  CHECK(r.Sent<CancelRequest>().size() == 1);  // one worker, told once
  r.Cancel(b);
  CheckIdle(r);
}

TEST_CASE("cancel at every point ends once and tells only workers that hold a part") {
  for (int point = 0; point <= 4; ++point) {
    PairHarness r;
    const RequestId id = r.Submit(20, 4);
    const std::vector<std::pair<Incarnation, WorkerEvent>> story = {
        {kP1, Token(id, 20, 7)},
        {kP1, Ended(id, true)},
        {kD1, Token(id, 21, 8)},
        {kD1, Token(id, 22, 9)},
    };
    for (int i = 0; i < point; ++i) REQUIRE(r.Report(story[i].first, {story[i].second}).ok());
    r.Cancel(id);
    r.Cancel(id);
    CHECK(r.End(id).reason == EndReason::kCancelled);
    const auto cancels = r.Sent<CancelRequest>();
    CHECK(cancels.size() == (point >= 2 ? 1 : 2));
    CHECK(cancels[0].first == kD1);
    for (size_t i = point; i < story.size(); ++i)
      REQUIRE(r.Report(story[i].first, {story[i].second}).ok());
    CheckIdle(r);
  }
}

TEST_CASE("NO_ROOM: another worker with room is taken when that is sooner") {
  PairHarness r({.local = false});
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation first = r.LastDecodeWorker();
  const auto no_room = [&](absl::Duration wait, Epoch epoch) {
    r.sent.clear();
    return r.Report(kP1, {NoRoomNotice{.request_id = id,
                                       .epoch = epoch,
                                       .expected_wait_us = absl::ToInt64Microseconds(wait)}});
  };
  REQUIRE(no_room(absl::Milliseconds(1), 1).ok());
  CHECK(r.sent.empty());
  REQUIRE(no_room(absl::Seconds(5), 1).ok());
  CHECK(r.LastDecodeWorker() != first);
  CHECK(r.LastPrefill().epoch == 2);
  // Both workers are full now, so the request stays and waits.
  REQUIRE(no_room(absl::Seconds(4), 2).ok());
  CHECK(r.sent.empty());
  // A notice of an old attempt does not count for the new one.
  REQUIRE(no_room(absl::Seconds(50), 1).ok());
  CHECK(r.sent.empty());
  r.Cancel(id);
  CheckIdle(r);
}

TEST_CASE("a burst spreads over workers before any load report") {
  RouterHarness r({.local = false});
  r.Join(kP1, Role::kPrefill);
  r.Join(kP2, Role::kPrefill);
  r.Join(kD1, Role::kDecode);
  r.Join(kD2, Role::kDecode);
  std::map<Incarnation, int> prefills, decodes;
  for (int i = 0; i < 8; ++i) {
    r.Submit(100, 10);
    ++prefills[r.LastPrefillWorker()];
    ++decodes[r.LastDecodeWorker()];
  }
  CHECK(prefills[kP1] == 4);
  CHECK(decodes[kD1] == 4);
}

TEST_CASE("measured speed and queue decide") {
  RouterHarness r({.local = false});
  r.Join(kP1, Role::kPrefill);
  r.Join(kP2, Role::kPrefill);
  r.Join(kD1, Role::kDecode);
  REQUIRE(r.Report(kP1, {MeasuredLoad(1000)}).ok());
  REQUIRE(r.Report(kP2, {MeasuredLoad(4000)}).ok());
  std::map<Incarnation, int> count;
  for (int i = 0; i < 10; ++i) {
    r.Submit(100, 1);
    ++count[r.LastPrefillWorker()];
  }
  CHECK(count[kP2] == 8);  // four times as fast, four times as many
  CHECK(count[kP1] == 2);
}

TEST_CASE("a queue is shorter by what is computed, told by first tokens and by load reports") {
  RouterHarness r({.local = false});
  r.Join(kP1, Role::kPrefill);
  r.Join(kP2, Role::kPrefill);
  r.Join(kD1, Role::kDecode);
  r.Submit(1000, 10);
  CHECK(r.LastPrefillWorker() == kP1);
  const RequestId second = r.Submit(1000, 10);
  CHECK(r.LastPrefillWorker() == kP2);  // with equal queues the next would be kP1
  SECTION("first token") {
    REQUIRE(r.Report(kP2, {Token(second, 1000, 7)}).ok());
    r.Submit(1000, 10);
    CHECK(r.LastPrefillWorker() == kP2);
  }
  SECTION("load report") {
    r.now += absl::Milliseconds(200);
    REQUIRE(r.Report(kP2, {WorkerLoad{.prefill_queued_tokens = 100}}).ok());
    r.Submit(1000, 10);
    CHECK(r.LastPrefillWorker() == kP2);
  }
  SECTION("load report that may have been written before the request arrived") {
    REQUIRE(r.Report(kP2, {WorkerLoad{.prefill_queued_tokens = 0}}).ok());
    r.Submit(1000, 10);
    CHECK(r.LastPrefillWorker() == kP1);
  }
}

TEST_CASE("deadline") {
  PairHarness r;
  GenerateRequest request{.prompt = {1, 2}, .max_tokens = 4, .timeout = absl::Seconds(2)};
  const RequestId id = r.Submit(request);
  r.Advance(absl::Milliseconds(1999));
  CHECK_FALSE(r.Ended(id));
  r.Advance(absl::Milliseconds(1));
  CHECK(r.End(id).reason == EndReason::kFailed);
  CHECK(r.End(id).status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(r.Sent<CancelRequest>().size() == 2);
  CheckIdle(r);
}

TEST_CASE("drain: nothing new, what runs goes on, and the workers serve other routers") {
  PairHarness r;
  const RequestId id = r.Submit(20, 1);
  r.router.Drain();
  r.Collect();
  CHECK(r.router.View().draining);
  CHECK(r.router.Submit({.prompt = {1}}, r.now).status().code() == absl::StatusCode::kUnavailable);
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  CHECK(r.End(id).reason == EndReason::kLength);
}

TEST_CASE("the view adds up the workers' reports") {
  PairHarness r;
  REQUIRE(r.Report(kD1, {WorkerLoad{.pages_free = 900}}).ok());
  r.Submit(20, 13);
  const ClusterView view = r.router.View();
  CHECK(view.prefill_workers == 1);
  CHECK(view.decode_workers == 1);
  CHECK(view.running == 1);
  CHECK(view.max_context == 2048);
  CHECK(view.kv_pages_total == 1000);
  CHECK(view.kv_pages_free == 900);
  CHECK(view.kv_pages_promised == 2);
  CHECK(view.model_fingerprint == 7);
  CHECK(view.numerics_id == "cpu-x86");
  CHECK(RouterHarness().router.View().numerics_id.empty());
}

TEST_CASE("each worker's view has its reports and what the router has sent it") {
  PairHarness r;
  const RequestId id = r.Submit(20, 13);
  REQUIRE(
      r.Report(kD1, {WorkerLoad{.decode_rows = 1, .decode_waiting = 2, .pages_free = 900}}).ok());
  std::vector<WorkerView> workers = r.router.Workers();
  REQUIRE(workers.size() == 2);
  const auto decode_of = [](const std::vector<WorkerView>& all) {
    return *std::find_if(all.begin(), all.end(),
                         [](const WorkerView& worker) { return worker.role == Role::kDecode; });
  };
  const WorkerView decode = decode_of(workers);
  CHECK(decode.name == Announce(kD1, Role::kDecode).name);
  CHECK(decode.requests == 1);
  CHECK(decode.decode_rows == 1);
  CHECK(decode.decode_waiting == 2);
  CHECK(decode.pages_total == 1000);
  CHECK(decode.pages_free == 900);
  CHECK(decode.pages_promised == 2);
  CHECK_FALSE(decode.draining);
  for (const WorkerView& worker : workers)
    if (worker.role == Role::kPrefill) CHECK(worker.pages_free == worker.pages_total);  // no report
  r.router.Cancel(id, r.now);
  CHECK(decode_of(r.router.Workers()).requests == 0);
  CHECK(decode_of(r.router.Workers()).pages_promised == 0);
  REQUIRE(r.Report(kD1, {WorkerLoad{.draining = true}}).ok());
  CHECK(decode_of(r.router.Workers()).draining);
}

}  // namespace baton
