// The table of a prompt's states: each has a deadline, and each transition is taken.
#include "prefill_worker/prompt.h"

#include "tests/prefill_worker/scheduler_fixture.h"

namespace baton {
namespace {

TEST_CASE("every state of a prompt has a deadline, and every transition can be taken") {
  const MachineTable& table = PromptTable();
  for (const StateRow& state : table.states) {
    CAPTURE(state.name);
    REQUIRE(state.deadline.empty() == (&state == &table.states.back()));
    REQUIRE(state.on_deadline.empty() == state.deadline.empty());
  }
  TransitionCounts counts;
  SchedulerFixture b(200, 0, 20, &counts);
  // Ends the prompt in each of these states, by its handoff and by a cancel.
  enum { kOpening, kPromised, kRunning, kCommitting };
  RequestId id = 0;
  for (const int state : {kOpening, kPromised, kRunning, kCommitting})
    for (const bool cancelled : {false, true}) {
      b.Admit(SchedulerFixture::Request(++id, 12, kPeer));
      b.Step(0);
      if (state > kOpening) b.Promise(id);
      if (state == kRunning) b.Step(4);
      if (state == kCommitting) b.Step(12);
      if (cancelled) b.scheduler->prompts().Cancel(id, 1);
      b.EndHandoff(id, absl::UnavailableError("peer lost"));
      REQUIRE(b.ends.contains(id));
    }
  b.Admit(SchedulerFixture::Request(++id, 12));
  b.Step(100);  // without a handoff
  b.Admit(SchedulerFixture::Request(++id, 12));
  b.scheduler->prompts().Cancel(id, 1);
  // The inflow of a relay's tail fails while the tail waits or runs, or after a cancel.
  enum { kWaiting, kStarted, kAbandoned };
  for (const int state : {kWaiting, kStarted, kAbandoned})
    for (const Incarnation sink : {Incarnation{0}, kPeer}) {
      PrefillRequest tail = SchedulerFixture::Request(++id, 12, sink);
      const TicketId inflow = SchedulerFixture::Id(1000 + id);
      tail.slices[0].begin = 8;
      tail.slices[0].inflow = inflow;
      b.Admit(tail);
      b.Step(0);
      if (sink != 0) b.Promise(id);
      b.Step(100);
      if (state == kStarted)
        b.scheduler->prompts().On(InflowArrived{.ticket_id = inflow, .n_planes = 1}, b.now);
      b.builder.Clear();
      b.scheduler->Contribute({.tokens = 100}, 0, b.now, &b.builder);
      if (state == kAbandoned) b.scheduler->prompts().Cancel(id, 1);
      b.scheduler->prompts().On(
          InflowFailed{.ticket_id = inflow, .status = absl::UnavailableError("head lost")}, b.now);
      b.Collect();
      if (sink != 0) b.EndHandoff(id, absl::CancelledError("cancelled"));
      REQUIRE(b.ends.contains(id));
    }
  // A head whose handoff breaks in every state while the head has a slice, its own or taken over;
  // the last handoff does not break.
  const RequestId head_id = ++id;
  for (Epoch epoch = 1; epoch <= 5; ++epoch) {
    PrefillRequest head = SchedulerFixture::Request(head_id, 12, kPeer);
    head.epoch = epoch;
    const RequestId handoff = head_id + 10'000 * epoch;
    SetHead(&head, SchedulerFixture::Id(handoff));
    b.Admit(head);
    b.Step(0);
    if (epoch != 2) b.Promise(handoff);
    if (epoch == 1) b.Step(4);
    while (epoch >= 4 && b.Step(100) > 0) {
    }
    b.EndHandoff(handoff, epoch == 5 ? absl::OkStatus() : absl::UnavailableError("next rank lost"));
    REQUIRE(b.pool->held() > 0);
  }
  // A head with a slice in each of two rounds.
  PrefillRequest head = SchedulerFixture::Request(++id, 12, kPeer);
  SetHead(&head, SchedulerFixture::Id(20'000));
  SliceSpec first = head.slices[0], second = first;
  first.end = 4;
  first.outputs[0].ticket.id = SchedulerFixture::Id(22'000);
  first.outputs[0].ticket.kv_pages = first.outputs[0].ticket.n_pages = 1;
  second.begin = 8;
  second.inflow = SchedulerFixture::Id(21'000);
  head.slices = {first, second};
  b.Admit(head);
  b.Step(0);
  b.Promise(22'000);
  while (b.Step(100) > 0) {
  }
  b.scheduler->prompts().On(
      InflowFailed{.ticket_id = second.inflow, .status = absl::UnavailableError("tail lost")},
      b.now);
  b.EndHandoff(22'000);
  REQUIRE(b.ends.contains(id));
  // Two tails, one of which runs.
  std::vector<TicketId> inflows;
  for (int i = 0; i < 2; ++i) {
    PrefillRequest tail = SchedulerFixture::Request(++id, 12);
    inflows.push_back(SchedulerFixture::Id(1000 + id));
    tail.slices[0].begin = 8;
    tail.slices[0].inflow = inflows.back();
    b.Admit(tail);
    for (const bool arrived : {false, true}) {
      if (arrived)
        b.scheduler->prompts().On(InflowArrived{.ticket_id = inflows.back(), .n_planes = 1}, b.now);
      b.builder.Clear();
      b.scheduler->Contribute({.tokens = 100}, 0, b.now, &b.builder);
    }
  }
  for (const TicketId& inflow : inflows)
    b.scheduler->prompts().On(
        InflowFailed{.ticket_id = inflow, .status = absl::UnavailableError("head lost")}, b.now);
  b.ForgetKept();
  for (const TransitionRow& row : table.transitions) {
    CAPTURE(table.states[row.from].name, table.states[row.to].name);
    REQUIRE(counts.count(table, row) > 0);
  }
  b.Collect();
  REQUIRE(b.pool->held() == 0);
}

}  // namespace
}  // namespace baton
