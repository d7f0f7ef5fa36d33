// Relays at the router: attempts whose prompt two workers compute, head and tail; the choice of the
// workers and the messages to each.
#include <catch2/catch.hpp>
#include <map>

#include "tests/router/relay_harness.h"

namespace baton {
TEST_CASE("a relay: the head gets the first slice, the tail everything, each its ticket") {
  RelayHarness r;
  const RequestId id = r.Submit(100, 3);
  REQUIRE(r.sent.size() == 3);
  CHECK(r.sent[0].first == kDecode1);
  CHECK(r.sent[1].first == kTail);
  CHECK(r.sent[2].first == kHead);
  const DecodeRequest decode = std::get<DecodeRequest>(r.sent[0].second);
  const PrefillRequest tail = std::get<PrefillRequest>(r.sent[1].second);
  const PrefillRequest head = std::get<PrefillRequest>(r.sent[2].second);

  CHECK(tail.wants_first_token);
  CHECK(tail.tokens.size() == 100);
  CHECK(LastSlice(tail).inflow == TicketOf(head).id);
  CHECK(LastSlice(tail).begin == 48);
  CHECK(MainOf(tail).peer == Announce(kDecode1, Role::kDecode).transfer);
  CHECK(VerifyTicket(TestKey(), TicketOf(tail)));
  CHECK(TicketOf(tail).id == decode.ticket_id);
  CHECK(TicketOf(tail).source == kTail);
  CHECK(TicketOf(tail).sink == kDecode1);
  CHECK(TicketOf(tail).kv_pages == 7);
  CHECK(TicketOf(tail).promise_pages == 7);
  CHECK(decode.tokens == tail.tokens);

  CHECK_FALSE(head.wants_first_token);
  CHECK(head.request_id == id);
  CHECK(head.epoch == 1);
  CHECK(head.tokens == std::vector<int32_t>(tail.tokens.begin(), tail.tokens.begin() + 48));
  CHECK(LastSlice(head).inflow == TicketId{});
  CHECK(MainOf(head).peer == Announce(kTail, Role::kPrefill).transfer);
  CHECK(VerifyTicket(TestKey(), TicketOf(head)));
  CHECK_FALSE(TicketOf(head).id == TicketOf(tail).id);
  CHECK(TicketOf(head).source == kHead);
  CHECK(TicketOf(head).sink == kTail);
  CHECK(TicketOf(head).request_id == id);
  CHECK(TicketOf(head).epoch == 1);
  CHECK(TicketOf(head).kv_pages == 3);
  CHECK(TicketOf(head).promise_pages == 0);
  CHECK(r.router.View().relays == 1);

  const bool head_ends_first = GENERATE(true, false);
  if (head_ends_first) REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
  r.now += absl::Milliseconds(30);
  const PromptComputed computed{.request_id = id, .epoch = 1, .queue_us = 3000, .compute_us = 4000};
  REQUIRE(r.Report(kTail, {computed, Token(id, 100, 7)}).ok());
  if (!head_ends_first) REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
  REQUIRE(r.Report(kTail, {Ended(id, true)}).ok());
  REQUIRE(r.Report(kDecode1, {Token(id, 101, 8), Token(id, 102, 9), Ended(id, false)}).ok());
  CHECK(r.tokens[id] == std::vector<int32_t>{7, 8, 9});
  const EmitEnd& end = r.End(id);
  CHECK(end.reason == EndReason::kLength);
  CHECK(end.timeline.ttft == absl::Milliseconds(30));
  CHECK(end.timeline.prefill == absl::Milliseconds(4));
  CHECK(end.timeline.prefill_heads == "w12");
  CHECK(end.timeline.prefill_worker == "w11");
  CHECK(end.timeline.decode_worker == "w1");
  CHECK(end.timeline.attempts == 1);
  CHECK(r.sent.size() == 3);  // nothing to cancel
  CHECK(r.released.empty());
  CheckIdle(r);
}

TEST_CASE("a relay of three ranks: each hands all KV up to its slice's end to the next") {
  RouterOptions options = Relays();
  options.relay.max_ranks = 3;
  RelayHarness r(options);
  r.Join(kThird, Role::kPrefill);
  const RequestId id = r.Submit(96, 3);
  REQUIRE(r.sent.size() == 4);
  CHECK(r.sent[0].first == kDecode1);
  CHECK(r.sent[1].first == kTail);
  CHECK(r.sent[2].first == kHead);
  CHECK(r.sent[3].first == kThird);
  const PrefillRequest tail = std::get<PrefillRequest>(r.sent[1].second);
  const PrefillRequest second = std::get<PrefillRequest>(r.sent[2].second);
  const PrefillRequest first = std::get<PrefillRequest>(r.sent[3].second);
  CHECK(LastSlice(tail).inflow == TicketOf(second).id);
  CHECK(LastSlice(tail).begin == 64);
  CHECK_FALSE(second.wants_first_token);
  CHECK(second.tokens.size() == 64);
  CHECK(LastSlice(second).inflow == TicketOf(first).id);
  CHECK(LastSlice(second).begin == 32);
  CHECK(MainOf(second).peer == Announce(kTail, Role::kPrefill).transfer);
  CHECK(TicketOf(second).sink == kTail);
  CHECK(TicketOf(second).kv_pages == 4);
  CHECK(TicketOf(second).promise_pages == 0);
  CHECK_FALSE(first.wants_first_token);
  CHECK(first.tokens.size() == 32);
  CHECK(LastSlice(first).inflow == TicketId{});
  CHECK(MainOf(first).peer == Announce(kHead, Role::kPrefill).transfer);
  CHECK(TicketOf(first).kv_pages == 2);
  // Each rank hands its own slice to the decode worker.
  CHECK(TicketOf(tail).first_page == 4);
  CHECK(TicketOf(tail).promise == TicketOf(tail).id);
  CHECK(TicketOf(tail).is_last());
  CHECK(PushOf(LastSlice(second)).ticket.promise == TicketOf(tail).id);
  CHECK(PushOf(LastSlice(second)).ticket.first_page == 2);
  CHECK(PushOf(LastSlice(second)).ticket.n_pages == 2);
  CHECK(PushOf(LastSlice(first)).ticket.promise == TicketOf(tail).id);
  CHECK(PushOf(LastSlice(first)).ticket.first_page == 0);
  CHECK(PushOf(LastSlice(first)).ticket.n_pages == 2);
  CHECK(LastSlice(tail).outputs.size() == 1);
  for (const PrefillRequest& head : {second, first}) {
    CHECK(PushOf(LastSlice(head)).peer == Announce(kDecode1, Role::kDecode).transfer);
    CHECK(PushOf(LastSlice(head)).ticket.sink == kDecode1);
    CHECK(PushOf(LastSlice(head)).ticket.promise_pages == TicketOf(tail).promise_pages);
    CHECK(PushOf(LastSlice(head)).ticket.kv_pages == TicketOf(tail).kv_pages);
    CHECK(VerifyTicket(TestKey(), PushOf(LastSlice(head)).ticket));
  }
  for (const PrefillRequest& request : {tail, second, first})
    CHECK(VerifyTicket(TestKey(), TicketOf(request)));

  SECTION("to its end") {
    REQUIRE(r.Report(kThird, {Ended(id, true)}).ok());
    REQUIRE(r.Report(kTail, {Token(id, 96, 7)}).ok());
    REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
    REQUIRE(r.Report(kTail, {Ended(id, true)}).ok());
    REQUIRE(r.Report(kDecode1, {Token(id, 97, 8), Token(id, 98, 9), Ended(id, false)}).ok());
    CHECK(r.tokens[id] == std::vector<int32_t>{7, 8, 9});
    CHECK(r.End(id).timeline.prefill_heads == "w13,w12");
    CHECK(r.sent.size() == 4);
    CheckIdle(r);
  }
  SECTION("cancelled: every rank hears of it") {
    r.Cancel(id);
    CHECK(r.Cancelled() == Incarnations{kDecode1, kTail, kThird, kHead});
    for (const Incarnation rank : {kTail, kHead, kThird})
      REQUIRE(r.Report(rank, {Ended(id, true, EndReason::kCancelled)}).ok());
    REQUIRE(r.Report(kDecode1, {Ended(id, false, EndReason::kCancelled)}).ok());
    CheckIdle(r);
  }
  SECTION("two heads lost: dispatched again at one worker, the others hear of it") {
    r.Lose(kHead);
    r.Lose(kThird);
    const PrefillRequest again = r.LastPrefill();
    CHECK(again.epoch == 3);
    CHECK(LastSlice(again).inflow == TicketId{});
    CHECK(again.slices.size() == 1);
    CHECK(again.wants_first_token);
    CHECK(r.Cancelled() == Incarnations{kDecode1, kDecode1, kTail});
  }
  SECTION("heads are no longer needed once the decode worker has computed a token") {
    REQUIRE(r.Report(kTail, {Token(id, 96, 7)}).ok());
    REQUIRE(r.Report(kDecode1, {Token(id, 97, 8)}).ok());
    r.Lose(kHead);
    r.Lose(kThird);
    CHECK(r.Cancelled().empty());
    CHECK(r.sent.size() == 4);
  }
}

TEST_CASE("the tail alone hands KV to the decode worker where that is asked for, or none does") {
  const bool asked = GENERATE(true, false);
  RouterOptions options = Relays();
  if (asked) options.relay.sharing = SharingOf({.push = RelayPush::kTail});
  RelayHarness r(options);
  r.Submit(96, asked ? 3 : 1);  // a request for one token decodes nothing
  for (const auto& [worker, message] : r.sent) {
    const auto* request = std::get_if<PrefillRequest>(&message);
    if (request == nullptr) continue;
    CHECK((request->wants_first_token || PushOf(LastSlice(*request)) == KvOutput{}));
    CHECK(TicketOf(*request).first_page == 0);
  }
  CHECK(r.LastIsRelay());
}

TEST_CASE("no relay where none is asked for or none is possible") {
  const auto relayed = [](RelayHarness& r, int32_t n_prompt = 100) {
    const RequestId id = r.Submit(n_prompt, 3);
    const bool relay = r.LastIsRelay();
    CHECK(r.sent.size() == (relay ? 3 : 2));
    CHECK(r.router.View().relays == (relay ? 1 : 0));
    r.Cancel(id);
    return relay;
  };
  SECTION("as shipped") {
    RelayHarness r{RouterOptions{.local = false}};
    CHECK_FALSE(relayed(r, 2000));
  }
  SECTION("a prompt that is long enough") {
    RelayHarness r;
    CHECK(relayed(r, 40));
  }
  SECTION("a prompt that is too short") {
    RelayHarness r;
    CHECK_FALSE(relayed(r, 39));
  }
  SECTION("a prompt of less than two pages") {
    RelayHarness r(RouterOptions{.local = false, .relay = {.min_tokens = 1}});
    CHECK_FALSE(relayed(r, 31));
    RelayHarness two(RouterOptions{.local = false, .relay = {.min_tokens = 1}});
    CHECK(relayed(two, 32));
  }
  SECTION("one worker is allowed") {
    RelayHarness r(RouterOptions{.local = false, .relay = {.min_tokens = 1, .max_ranks = 1}});
    CHECK_FALSE(relayed(r));
  }
  SECTION("one prefill worker") {
    RelayHarness r;
    r.Lose(kHead);
    CHECK_FALSE(relayed(r));
  }
  SECTION("the other one drains") {
    RelayHarness r;
    REQUIRE(r.Report(kHead, {WorkerLoad{.draining = true}}).ok());
    CHECK_FALSE(relayed(r));
  }
  SECTION("a decode worker that is greater than the prefill workers") {
    RouterOptions options = Relays();
    options.local = false;
    RelayHarness r(options);
    r.Join(kD1, Role::kDecode);
    r.Lose(kDecode1);
    CHECK_FALSE(relayed(r));
  }
  SECTION("the other one is too small") {
    RelayHarness r;
    r.Lose(kHead);
    WorkerAnnounce small = Announce(kThird, Role::kPrefill);
    small.pages_total = 6;
    REQUIRE(r.Report(kThird, {small}).ok());
    CHECK_FALSE(relayed(r));
  }
}

TEST_CASE("a relay of one token ends at the tail; a tail may decode itself") {
  SECTION("prefill alone") {
    RelayHarness r;
    const RequestId id = r.Submit(100, 1);
    REQUIRE(r.sent.size() == 2);
    const PrefillRequest tail = std::get<PrefillRequest>(r.sent[0].second);
    CHECK(TicketOf(tail).sink == 0);
    CHECK(InflowTokens(tail) == 48);
    CHECK_FALSE(r.LastPrefill().wants_first_token);
    REQUIRE(r.Report(kTail, {Token(id, 100, 7), Ended(id, true)}).ok());
    CHECK(r.End(id).reason == EndReason::kLength);
    // The tail has not heard of the head's end, so the head's part must be cancelled.
    CHECK(r.Cancelled() == Incarnations{kHead});
    REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
    CheckIdle(r);
  }
  SECTION("workers of both roles") {
    RouterHarness r(Relays());
    r.Join(1, Role::kBoth);
    r.Join(2, Role::kBoth);
    REQUIRE(r.Report(1, {MeasuredLoad(1000)}).ok());
    const RequestId id = r.Submit(100, 2);
    REQUIRE(r.sent.size() == 3);
    CHECK(r.LastDecodeWorker() == 1);
    CHECK(r.LastPrefillWorker() == 2);
    CHECK_FALSE(r.LastPrefill().wants_first_token);
    r.Cancel(id);
    CHECK(r.Sent<CancelRequest>().size() == 2);  // two workers, three parts
    CheckIdle(r);
  }
}

TEST_CASE("head and tail are each charged for their slice until it is computed") {
  RelayHarness r;
  REQUIRE(r.Report(kDecode1, {WorkerLoad{.step_cost = {.base = 1e-3}}}).ok());
  r.Join(kThird, Role::kPrefill);
  const RequestId relay = r.Submit(2000, 2);  // 1008 tokens at the head, 992 at the tail
  REQUIRE(r.LastPrefillWorker() == kHead);
  REQUIRE(r.LastIsRelay());
  const auto next = [&] {  // a prompt too short for a relay
    const RequestId id = r.Submit(10, 2);
    const Incarnation worker = r.LastPrefillWorker();
    r.Cancel(id);
    return worker;
  };
  CHECK(next() == kThird);
  CHECK(next() == kThird);
  r.Lose(kThird);
  r.Cancel(r.Submit(19, 2));
  SECTION("the head is done") {
    REQUIRE(r.Report(kHead, {Ended(relay, true)}).ok());
    CHECK(next() == kHead);
    CHECK(next() == kHead);
  }
  SECTION("the tail is done, and so its head") {
    REQUIRE(r.Report(kTail, {Token(relay, 2000, 7)}).ok());
    const Incarnation first = next();
    CHECK(first != next());  // the workers alternate
  }
  SECTION("it ends") {
    r.Cancel(relay);
    const Incarnation first = next();
    CHECK(first != next());
  }
}

TEST_CASE("a full decode worker: a relay moves while nothing is computed, and stays a relay") {
  RelayHarness r;
  r.Join(kDecode2, Role::kDecode);
  const RequestId id = r.Submit(100, 4);
  const Incarnation decode = r.LastDecodeWorker();
  const auto no_room = [&](Incarnation worker) {
    r.sent.clear();
    return r.Report(worker,
                    {NoRoomNotice{.request_id = id, .epoch = 1, .expected_wait_us = 60'000'000}});
  };
  REQUIRE(no_room(kHead).ok());  // a tail without pages says nothing about other workers
  CHECK(r.sent.empty());
  REQUIRE(no_room(kTail).ok());
  CHECK(r.Cancelled() == Incarnations{decode, kTail, kHead});
  CHECK(r.LastDecodeWorker() != decode);
  CHECK(r.LastIsRelay());
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(r.router.View().relays == 2);
  r.Cancel(id);
  CheckIdle(r);
}

TEST_CASE("what a head cannot know closes its stream") {
  RelayHarness r;
  const RequestId id = r.Submit(100, 4);
  const auto code = [&](WorkerEvent event) { return r.Report(kHead, {std::move(event)}).code(); };
  SECTION("a token") {
    CHECK(code(Token(id, 100, 7)) == absl::StatusCode::kInvalidArgument);
    CHECK(r.tokens[id].empty());
  }
  SECTION("the prompt") {
    CHECK(code(PromptComputed{.request_id = id, .epoch = 1}) == absl::StatusCode::kInvalidArgument);
  }
  SECTION("the end of a decode part") {
    CHECK(code(Ended(id, false)) == absl::StatusCode::kInvalidArgument);
  }
  SECTION("preempted") {
    CHECK(code(Ended(id, true, EndReason::kPreempted)) == absl::StatusCode::kInvalidArgument);
  }
  CHECK(r.LastPrefill().epoch == 2);
  CHECK(r.LastPrefillWorker() == kTail);
  CHECK_FALSE(r.LastIsRelay());
  r.Cancel(id);
  CheckIdle(r);
}

TEST_CASE("drain: a relay goes on to its end") {
  RelayHarness r;
  const RequestId id = r.Submit(100, 2);
  r.router.Drain();
  r.Collect();
  REQUIRE(r.Report(kHead, {Ended(id, true)}).ok());
  REQUIRE(r.Report(kTail, {Token(id, 100, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(kDecode1, {Token(id, 101, 8), Ended(id, false)}).ok());
  CHECK(r.End(id).reason == EndReason::kLength);
}

}  // namespace baton
