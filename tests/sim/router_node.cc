#include "tests/sim/router_node.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "tests/sim/narration.h"
#include "tests/sim/violation.h"

namespace baton::sim {
namespace {

constexpr int kMaxPreemptions = 3;  // per request (docs/SCHEDULING.md)
constexpr int64_t kReleaseUs = 100'000;
constexpr size_t kLongestQueue = 20'000;

ClusterKey Key() { return {1, 2, 3}; }

}  // namespace

RouterNode::RouterNode(int index, const Surroundings& run)
    : index_(index),
      run_(run),
      wire_(index, run.swarm, run.agenda, run.random, run.workers, [this] { WakeFront(); }) {
  Begin();
}

void RouterNode::Begin() {
  RouterOptions options = run_.swarm.router;
  options.transitions = run_.transitions;
  options.attempt_silence = absl::InfiniteDuration();  // it would end hangs, and so hide them
  router_ = std::make_unique<Router>(options, Key(), run_.next_id);
  streams_ = std::make_unique<WorkerStreams>(router_.get());
  wire_.SetRouter(router_->id());
}

// ---- the front thread ----

void RouterNode::WakeFront() {
  if (std::exchange(front_woken_, true)) return;
  run_.agenda->Add(run_.agenda->now_us() + run_.random->Between(1, run_.swarm.front_us),
                   What::kRouterTurn, index_);
}

void RouterNode::FrontTurn() {
  front_woken_ = false;
  TakeFrontEvents();
  CarryOut();
}

void RouterNode::OnTimer(uint64_t stamp) {
  if (stamp != stamp_) return;
  timer_ = absl::InfiniteFuture();
  TakeFrontEvents();
  router_->OnTime(now());
  run_.agenda->Happened(What::kRouterTime, index_);
  CarryOut();
}

// Handles all events, then the router's effects.
void RouterNode::TakeFrontEvents() {
  while (wire_.TakeFrontEvents(&front_events_)) {
    run_.agenda->Happened(What::kRouterTurn, index_, front_events_.size());
    for (FrontEvent& event : front_events_) {
      if (const auto* lost = std::get_if<StreamLost>(&event)) {
        run_.agenda->Trace("router %d: worker %x lost", index_, lost->worker);
        lost_once_.insert(lost->worker);
        streams_->OnLost(lost->worker, now());
      } else if (const auto* reported = std::get_if<StreamReported>(&event);
                 reported != nullptr && !streams_->IsClosed(reported->worker)) {
        CheckReport(*reported);
        const absl::Status status = streams_->OnReport(reported->worker, reported->report, now());
        if (run_.agenda->tracing())
          run_.agenda->Trace("router %d <- %x: %s%s", index_, reported->worker,
                             Tell(reported->report),
                             status.ok() ? "" : ", refused: " + status.ToString());
        Require(status.ok(), "a worker broke the control protocol: %s", status.ToString());
      }
    }
    front_events_.clear();
  }
}

// A part may end as cancelled only if it was cancelled, fail only after a fault, and be preempted
// at most as often as promised.
void RouterNode::CheckReport(const StreamReported& reported) {
  for (const WorkerEvent& event : reported.report.events) {
    const auto* part = std::get_if<PartEnded>(&event);
    if (part == nullptr) continue;
    const auto is_cancelled = [&] {
      const auto it = cancels_.find({reported.worker, part->request_id});
      return it != cancels_.end() && it->second >= part->epoch;
    };
    const bool reported_to = is_cancelled();
    if (part->reason == EndReason::kPreempted) {
      CollectEffects();  // the router may have given up the attempt in the same turn
      Require(is_cancelled() || ++preemptions_[part->request_id] <= kMaxPreemptions,
              "request %x was preempted more than %d times", part->request_id, kMaxPreemptions);
    }
    if (part->reason == EndReason::kCancelled)
      Require(reported_to || lost_once_.contains(reported.worker),
              "worker %x cancelled attempt %d of request %x by itself", reported.worker,
              part->epoch, part->request_id);
    if (part->reason == EndReason::kFailed && run_.swarm.calm)
      Require(reported_to || run_.clients->IsOver(part->request_id) ||
                  run_.clients->BreaksItsGrammar(part->request_id),
              "attempt %d of request %x failed although nothing went wrong: %s", part->epoch,
              part->request_id, part->message);
  }
}

// Without faults, an ended request must leave its workers soon: its parts hear of the end after a
// wire and at most one step, the two ends of its handoff agree, and the end is reported. That takes
// two more wires between the workers, a step of the other worker, and the wire to the router.
// Copies under way end first, at both ends, and what an engine that computes later does before
// them.
int64_t RouterNode::LongestStepUs(const WorkerPlan& worker) const {
  const double pairs = worker.max_step_tokens * (run_.swarm.max_prompt + run_.swarm.max_tokens);
  return worker.step_us + worker.token_us * worker.max_step_tokens +
         static_cast<int64_t>(worker.pair_us * pairs);
}

void RouterNode::CheckRelease(const EmitReleased& released) {
  const Swarm& swarm = run_.swarm;
  if (!swarm.calm) return;
  int64_t step_us = 0;
  for (const WorkerPlan& worker : swarm.workers) step_us = std::max(step_us, LongestStepUs(worker));
  const int64_t wire_us = swarm.min_delay_us + 2 * swarm.mean_delay_us;
  const int64_t copies_us =
      swarm.late_copies ? 8 * swarm.slab_slots * swarm.copy_us() + 4 * swarm.wake_us : 0;
  const int64_t device_us = swarm.depth * (swarm.n_layers + 32) * step_us;
  const int64_t bound_us = kReleaseUs + 2 * step_us + 4 * wire_us + copies_us + device_us +
                           2 * (swarm.far_us + swarm.front_us) + 6 * swarm.wake_us;
  ++run_.counts->releases;
  Require(!released.overdue && absl::ToInt64Microseconds(released.after) <= bound_us,
          "request %x ended, and its parts only %s later; the bound is %d us", released.request_id,
          absl::FormatDuration(released.after), bound_us);
}

void RouterNode::CollectEffects() {
  streams_->Collect();
  for (const auto& [worker, messages] : streams_->messages())
    for (const RouterMessage& message : messages) NoteCancel(worker, message);
  for (const RouterEffect& effect : std::exchange(streams_->emissions(), {})) {
    if (const auto* token = std::get_if<EmitToken>(&effect))
      run_.clients->OnToken(*token);
    else if (const auto* end = std::get_if<EmitEnd>(&effect))
      run_.clients->OnEnd(*end);
    else
      CheckRelease(std::get<EmitReleased>(effect));
  }
}

void RouterNode::NoteCancel(Incarnation worker, const RouterMessage& message) {
  if (const auto* cancel = std::get_if<CancelRequest>(&message))
    cancels_[{worker, cancel->request_id}] = cancel->epoch;
  // A later attempt ends the earlier ones.
  if (const auto* next = std::get_if<PrefillRequest>(&message); next && next->epoch > 1)
    cancels_[{worker, next->request_id}] = next->epoch - 1;
}

void RouterNode::CarryOut() {
  CollectEffects();
  for (auto& [worker, messages] : streams_->TakeMessages()) wire_.Send(worker, std::move(messages));
  for (const auto& [worker, reason] : streams_->TakeCloses()) {
    run_.agenda->Trace("router %d: closes worker %x: %s", index_, worker, reason.message());
    ++run_.counts->given_up;
    lost_once_.insert(worker);
    wire_.Close(worker);
  }
  if (router_->NextDeadline() != timer_) {
    timer_ = router_->NextDeadline();
    ++stamp_;
    if (timer_ != absl::InfiniteFuture())
      run_.agenda->Add(absl::ToUnixMicros(timer_) + 1, What::kRouterTime, index_, stamp_);
  }
  Require(wire_.LongestQueue() < kLongestQueue, "%d events wait in one queue",
          wire_.LongestQueue());
}

// ---- its end ----

void RouterNode::Kill(int64_t away_us) {
  ++run_.counts->router_kills;
  run_.agenda->Trace("router %d: killed", index_);
  CountRelays();
  run_.clients->OnRouterLost(router_->id());
  wire_.OnRouterKilled();
  streams_.reset();
  Begin();
  timer_ = absl::InfiniteFuture();
  ++stamp_;
  cancels_.clear();
  preemptions_.clear();
  for (const auto& worker : *run_.workers)
    if (worker->alive()) lost_once_.insert(worker->incarnation());
  run_.agenda->Add(run_.agenda->now_us() + away_us, What::kRouterStart, index_);
}

void RouterNode::CountRelays() const {
  const ClusterView view = router_->View();
  FaultCounts& counts = *run_.counts;
  counts.relays += view.relays;
  counts.ranks_replaced += view.ranks_replaced;
  counts.sinks_replaced += view.sinks_replaced;
  counts.replaced_in_rounds += view.replaced_in_rounds;
  counts.relays_left += view.failovers[static_cast<size_t>(FailoverCause::kLate)];
  counts.relays_in_rounds += view.relays_in_rounds;
  counts.followed += view.followed;
}

void RouterNode::Audit() const {
  const ClusterView view = router_->View();
  Require(view.running == 0 && view.waiting == 0 && view.kv_pages_promised == 0,
          "the router still has %d running, %d waiting, %d pages promised", view.running,
          view.waiting, view.kv_pages_promised);
}

bool RouterNode::PagesAgree() const {
  for (size_t i = 0; i < run_.workers->size(); ++i) {
    const Node& worker = *(*run_.workers)[i];
    if (!worker.alive() || wire_.LostPages(static_cast<int>(i))) continue;
    if (router_->prefixes().PagesOf(worker.incarnation()) != worker.CachedPageNames()) return false;
  }
  return true;
}

std::string RouterNode::Describe() const {
  const ClusterView view = router_->View();
  std::string out =
      absl::StrFormat("\n  router %d: %d running, %d waiting, %d + %d workers", index_,
                      view.running, view.waiting, view.prefill_workers, view.decode_workers);
  for (size_t i = 0; i < run_.workers->size(); ++i)
    if (!wire_.Connected(static_cast<int>(i)))
      absl::StrAppendFormat(&out, ", worker %d not connected", i);
  return out;
}

}  // namespace baton::sim
