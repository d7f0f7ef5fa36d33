// The ends of parts of a relay's ranks: with their handoffs and pushes, by a cancel at any block,
// or when an inflow or a handoff fails.
#include "tests/prefill_worker/relay_chain_fixture.h"

namespace baton {
namespace {

TEST_CASE("a head's part ends when both its handoffs have, in either order") {
  const bool push_first = GENERATE(true, false);
  RelayChainFixture chain({16, 32, 41}, kPeer, With(4), true);
  for (SchedulerFixture* head : {&chain.head(), chain.workers[1].get()}) {
    while (head->Step(1000) > 0) {
    }
    if (head == &chain.head()) chain.relay->Flow(0);
  }
  for (int rank = 0; rank < 2; ++rank) {
    SchedulerFixture& head = *chain.workers[static_cast<size_t>(rank)];
    chain.relay->RequireAllPassedOn(rank);
    head.EndHandoff(push_first ? PushId(7, rank) : HopId(7, rank));
    REQUIRE(head.ends.empty());
    REQUIRE(head.pool->held() > 0);
    head.EndHandoff(push_first ? HopId(7, rank) : PushId(7, rank));
    REQUIRE(head.ends.at(7).reason == EndReason::kLength);
    head.ForgetKept();
    REQUIRE(head.pool->held() == 0);
  }
}

TEST_CASE("a push may be committed and over before the last of the inflow is passed on") {
  RelayChainFixture chain({16, 32, 41}, kPeer, With(4), true);
  SchedulerFixture& middle = *chain.workers[1];
  while (chain.head().Step(1000) > 0) {
  }
  chain.relay->Flow(0, 2);
  while (middle.Step(1000) > 0) {
  }
  REQUIRE(middle.commits.size() == 1);
  middle.EndHandoff(PushId(7, 1));
  REQUIRE(middle.ends.empty());
  chain.relay->Flow(0);
  chain.relay->RequireAllPassedOn(1);
  middle.EndHandoff(HopId(7, 1));
  REQUIRE(middle.ends.at(7).reason == EndReason::kLength);
}

TEST_CASE("where whole prefixes are sent, a push waits for none of them") {
  RelayChainFixture chain({16, 32, 41}, kPeer, With(0, false), true);
  SchedulerFixture& middle = *chain.workers[1];
  while (chain.head().Step(1000) > 0) {
  }
  chain.relay->Flow(0, 2);
  while (middle.Step(1000) > 0) {
  }
  REQUIRE_FALSE(middle.scheduler->has_slice());
  REQUIRE(chain.relay->Waiting(1).size() == 8 * 2);  // nothing of the last layer
  REQUIRE(middle.commits.size() == 1);
  REQUIRE(middle.commits[0].ticket_id == SchedulerFixture::Id(PushId(7, 1)));
  chain.relay->Flow(0);
  chain.relay->RequireAllPassedOn(1);
  for (const RequestId handoff : {PushId(7, 1), HopId(7, 1)}) middle.EndHandoff(handoff);
  REQUIRE(middle.ends.at(7).reason == EndReason::kLength);
}

TEST_CASE("a push that fails ends the head's part, and a cancel ends the push") {
  const bool cancelled = GENERATE(true, false);
  const bool is_computed = GENERATE(true, false);
  RelayChainFixture chain({16, 41}, kPeer, With(4), true);
  SchedulerFixture& head = chain.head();
  REQUIRE(head.opens == std::vector<RequestId>{HopId(7, 0)});
  REQUIRE(head.Step(5) == 5);
  REQUIRE(head.opens.back() == PushId(7, 0));
  while (is_computed && head.Step(5) > 0) {
  }
  if (cancelled)
    head.scheduler->prompts().Cancel(7, 1);
  else
    head.EndHandoff(PushId(7, 0), absl::UnavailableError("decode worker lost"));
  head.Collect();
  REQUIRE(head.cancels.size() == (cancelled ? 2u : 1u));
  REQUIRE(head.ends.empty());
  if (cancelled) head.EndHandoff(PushId(7, 0), absl::CancelledError("cancelled"));
  REQUIRE(head.ends.empty());
  head.EndHandoff(HopId(7, 0), absl::CancelledError("cancelled"));
  const PartEnded& end = head.ends.at(7);
  REQUIRE(end.reason == (cancelled ? EndReason::kCancelled : EndReason::kFailed));
  REQUIRE(end.fault == (cancelled ? PartFault::kOwn : PartFault::kHandoff));
  REQUIRE(end.ticket_id == (cancelled ? TicketId{} : SchedulerFixture::Id(PushId(7, 0))));
  if (!cancelled) head.ForgetKept();
  REQUIRE(head.pool->held() == 0);
}

// Stages: 0 before pages, 1 awaited, 2 one plane, 3 and more: blocks computed.
void RunTo(RelayChainFixture& chain, int stage) {
  if (stage <= 1) return;
  while (chain.head().Step(5) > 0) {
  }
  chain.relay->Flow(0, 1);
  for (int blocks = 2; blocks < stage; ++blocks) {
    if (blocks == 6) chain.relay->Flow(0, 2);
    REQUIRE(chain.tail().Step(5) > 0);
  }
}
constexpr int kStages = 12;

TEST_CASE("a cancel reaches a slice at every block, and ends it when nothing touches its pages") {
  const int stage = GENERATE(range(0, kStages));
  const bool inflow_last = GENERATE(false, true);
  RelayChainFixture chain({12, 23}, kPeer);
  if (stage == 0) {
    auto alone = MakeWorker();
    alone->Admit(chain.relay->RequestOf(1));
    alone->scheduler->prompts().Cancel(7, 1);
    alone->Collect();
    REQUIRE(alone->ends.at(7).reason == EndReason::kCancelled);
    return;
  }
  RunTo(chain, stage);
  SchedulerFixture& tail = chain.tail();
  tail.scheduler->prompts().Cancel(7, 1);
  tail.Collect();
  REQUIRE_FALSE(tail.scheduler->has_slice());
  REQUIRE(tail.ends.empty());
  REQUIRE(tail.cancels.size() == 2);
  REQUIRE(tail.Step(1000) == 0);
  if (inflow_last) {
    tail.EndHandoff(7, absl::CancelledError("cancelled"));
    REQUIRE(tail.ends.empty());
    chain.relay->FailInflow(1);
  } else {
    chain.relay->FailInflow(1);
    REQUIRE(tail.ends.empty());
    tail.EndHandoff(7, absl::CancelledError("cancelled"));
  }
  REQUIRE(tail.ends.at(7).reason == EndReason::kCancelled);
  REQUIRE(tail.pool->held() == 0);
  REQUIRE(tail.tokens.empty());
  // The next slice starts from the beginning.
  RelayFixture next(9, {12, 23}, {&chain.head(), &tail}, 0);
  next.AdmitAll();
  for (int round = 0; round < 40; ++round) {
    tail.Step(5);
    next.PromiseAll();
    chain.head().Step(5);
    if (next.Pages(0) != nullptr) next.Flow(0);
  }
  next.RequireFirstToken();
}

TEST_CASE("a tail cancelled while its last planes land ends with them") {
  RelayChainFixture chain({12, 23}, kSelf);
  RunTo(chain, 4);
  chain.tail().scheduler->prompts().Cancel(7, 1);
  chain.tail().Collect();
  REQUIRE(chain.tail().ends.empty());
  chain.relay->Flow(0);
  REQUIRE(chain.tail().ends.at(7).reason == EndReason::kCancelled);
  REQUIRE(chain.tail().pool->held() == 0);
}

TEST_CASE("an inflow that fails ends the rank's part, with the handoff at fault") {
  const int stage = GENERATE(range(1, kStages));
  const Incarnation sink = GENERATE(as<Incarnation>{}, 0, kPeer, kSelf);
  RelayChainFixture chain({12, 23}, sink);
  RunTo(chain, stage);
  SchedulerFixture& tail = chain.tail();
  chain.relay->FailInflow(1);
  REQUIRE_FALSE(tail.scheduler->has_slice());
  if (sink == kPeer) {
    REQUIRE(tail.ends.empty());
    REQUIRE(tail.cancels.size() == 1);
    tail.EndHandoff(7, absl::CancelledError("cancelled"));
  }
  const PartEnded& end = tail.ends.at(7);
  REQUIRE(end.reason == EndReason::kFailed);
  REQUIRE(end.fault == PartFault::kHandoff);
  REQUIRE(end.ticket_id == SchedulerFixture::Id(HopId(7, 0)));
  tail.ForgetKept();
  REQUIRE(tail.pool->held() == 0);
}

TEST_CASE("when the decode handoff fails, the tail's pages are kept until its inflow has ended") {
  const int stage = GENERATE(range(1, kStages));
  RelayChainFixture chain({12, 23}, kPeer);
  RunTo(chain, stage);
  SchedulerFixture& tail = chain.tail();
  tail.EndHandoff(7, absl::UnavailableError("decode worker lost"));
  REQUIRE(tail.ends.empty());
  REQUIRE(tail.pool->held() > 0);
  chain.relay->FailInflow(1);
  REQUIRE(tail.ends.at(7).reason == EndReason::kFailed);
  tail.ForgetKept();
  REQUIRE(tail.pool->held() == 0);
}

TEST_CASE("after all planes have come, the end of the inflow's handoff says nothing any more") {
  RelayChainFixture chain({12, 23}, kPeer);
  RunTo(chain, 5);
  chain.relay->Flow(0);
  chain.relay->FailInflow(1);  // the head died before its COMMIT
  while (chain.tail().Step(5) > 0) {
  }
  chain.relay->RequireFirstToken();
  chain.tail().EndHandoff(7);
  REQUIRE(chain.tail().ends.at(7).reason == EndReason::kLength);
}

}  // namespace
}  // namespace baton
