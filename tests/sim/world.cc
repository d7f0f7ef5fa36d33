#include "tests/sim/world.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/sim/narration.h"
#include "tests/sim/violation.h"

namespace baton::sim {
namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kSafetyUs = 60 * kSecondUs;
// Enough for the slowest wires with the smallest windows, and less than any timer that ends a wait
// for room, pages or a turn (ten minutes), so that no such timer hides a hang.
constexpr int64_t kLivenessUs = 400 * kSecondUs;
constexpr uint64_t kMaxTurns = 5'000'000;  // turns of the loop; a run has a few thousand
constexpr int kMaxPreemptions = 3;         // per request (docs/SCHEDULING.md)
constexpr int64_t kReleaseUs = 100'000;
constexpr size_t kLongestQueue = 20'000;

// Router takes a plain function, so the ids come from the run of this thread.
thread_local SimRandom* ids_of_run = nullptr;
uint64_t NextId() { return ids_of_run->Next(); }

ClusterKey Key() { return {1, 2, 3}; }

}  // namespace

World::World(const Swarm& swarm, bool tracing)
    : swarm_(swarm),
      random_(swarm.seed),
      router_ids_(swarm.seed ^ 0x1d5),
      agenda_(&random_, tracing),
      network_(MemNetwork::Mode::kDeterministic, swarm.seed),
      wire_(swarm_, &agenda_, &random_, &nodes_, [this] { WakeFront(); }),
      router_(MakeRouter()),
      streams_(std::make_unique<WorkerStreams>(router_.get())),
      clients_(swarm_, &agenda_, &random_) {
  ids_of_run = &router_ids_;
  network_.set_faults({.corrupt_payload = swarm_.corrupt_payload,
                       .duplicate_message = swarm_.duplicate_message,
                       .cut_connection = swarm_.cut_connection,
                       .late_landing = swarm_.late_landing});
  network_.set_delay([this](const MemLink*, const MemLink* to) {
    constexpr int kSlower = 100;
    int64_t delay_us =
        random_.Between(swarm_.min_delay_us, swarm_.min_delay_us + 2 * swarm_.mean_delay_us);
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (slow_until_us_[i] > agenda_.now_us() && nodes_[i]->link() == to) delay_us *= kSlower;
    return random_.Percent(swarm_.slow_percent) ? 16 * delay_us : delay_us;
  });
  const auto node_of = [this](const MemLink* link) -> Node* {
    for (const auto& node : nodes_)
      if (node->link() == link) return node.get();
    return nullptr;  // the node is being killed
  };
  network_.set_watch(
      {.posted =
           [node_of](const MemLink* link, OperationId id, const std::byte* at, uint64_t n_bytes) {
             if (Node* node = node_of(link)) node->PostedWrite(id, at, n_bytes);
           },
       .landing =
           [node_of](const MemLink* link, OperationId id, const std::byte*, uint64_t) {
             if (Node* node = node_of(link)) node->LandingWrite(id);
           },
       .sent = [this](const MemLink* to,
                      const std::string& message) { intruder_.Overhear(to->address(), message); }});
  const size_t n = swarm_.workers.size();
  lives_.assign(n, 0);
  patience_until_us_.assign(n, 0);
  slow_until_us_.assign(n, 0);
  blocked_.assign(n + 1, std::vector<bool>(n + 1, false));
  for (size_t i = 0; i < n; ++i)
    nodes_.push_back(std::make_unique<Node>(
        static_cast<int>(i), swarm_, &agenda_, &random_, &network_,
        [this, i](WorkerReport report, int64_t at_us) {
          wire_.Report(static_cast<int>(i), std::move(report), at_us);
        },
        &transitions_));
}

World::~World() { nodes_.clear(); }

std::unique_ptr<Router> World::MakeRouter() {
  RouterOptions options = swarm_.router;
  options.transitions = &transitions_;
  options.attempt_silence = absl::InfiniteDuration();  // it would end hangs, and so hide them
  return std::make_unique<Router>(options, Key(), NextId);
}

// ---- time ----

bool World::RunUntil(int64_t limit_us, const std::function<bool()>& done) {
  while (!done()) {
    Require(++n_turns_ < kMaxTurns, "the cluster does not come to rest");
    if (disturbance_ != nullptr && agenda_.n_events() >= disturbance_->at_event)
      Disturb(*std::exchange(disturbance_, nullptr));
    const int64_t delivery_us = network_.NextDueUs(), entry_us = agenda_.NextUs();
    if (std::min(delivery_us, entry_us) > limit_us) {
      agenda_.AdvanceTo(limit_us);
      return false;
    }
    if (delivery_us <= entry_us) {
      agenda_.AdvanceTo(delivery_us);
      network_.Deliver(agenda_.now_us());
      intruder_.Turn();
      agenda_.Happened(What::kDelivery, 0);
    } else {
      Dispatch(agenda_.Take());
    }
  }
  return true;
}

void World::RunFor(int64_t us) {
  RunUntil(agenda_.now_us() + us, [] { return false; });
}

void World::Dispatch(const Agenda::Entry& entry) {
  switch (entry.what) {
    case What::kEngineTurn:
      return nodes_[entry.subject]->EngineTurn(entry.stamp);
    case What::kDevice:
      return nodes_[entry.subject]->DeviceDone(entry.stamp);
    case What::kLinkTurn:
      return nodes_[entry.subject]->LinkTurn(entry.stamp);
    case What::kControlUp:
      return wire_.DeliverUp(entry.stamp);
    case What::kControlDown:
      return wire_.DeliverDown(entry.stamp);
    case What::kKeepalive:
      return wire_.KeepaliveCheck(entry.stamp, entry.subject);
    case What::kDial:
      return wire_.Dial(entry.subject, entry.stamp);
    case What::kRouterTurn:
      return FrontTurn();
    case What::kRouterTime:
      if (entry.stamp != router_stamp_) return;
      router_timer_ = absl::InfiniteFuture();
      TakeFrontEvents();
      router_->OnTime(now());
      agenda_.Happened(entry.what, 0);
      return CarryOut();
    case What::kArrival:
      agenda_.Happened(entry.what, 0);
      intruder_.Try();
      clients_.Arrive([this](GenerateRequest r) { return router_->Submit(std::move(r), now()); });
      NoteWanted();
      return CarryOut();
    case What::kCancel: {
      const RequestId id = clients_.IdToCancel(entry.subject);
      agenda_.Happened(entry.what, entry.subject);
      agenda_.Trace("client %x: cancel", id);
      clients_.NoteCancelled(id);
      router_->Cancel(id, now());
      return CarryOut();
    }
    case What::kFault:
      return Fault();
    case What::kRestart:
      if (entry.stamp == lives_[entry.subject]) Start(entry.subject);
      return;
    case What::kResume:
      if (entry.stamp != lives_[entry.subject] || !nodes_[entry.subject]->paused()) return;
      agenda_.Happened(entry.what, entry.subject);
      agenda_.Trace("worker %d: goes on", entry.subject);
      nodes_[entry.subject]->Resume();
      return wire_.OnResumed(entry.subject);
    case What::kSign:
      if (entry.stamp == lives_[entry.subject] && nodes_[entry.subject]->alive())
        Sign(entry.subject);
      return;
    case What::kTurnAgain:
      if (entry.stamp != lives_[entry.subject] || !nodes_[entry.subject]->stands()) return;
      agenda_.Happened(entry.what, entry.subject);
      agenda_.Trace("worker %d: its engine turns again", entry.subject);
      return nodes_[entry.subject]->TurnAgain();
    case What::kStandCheck:
      if (entry.stamp == lives_[entry.subject] && nodes_[entry.subject]->stands())
        CheckStanding(entry.subject);
      return;
    case What::kHeal:
      return HealPartition();
    case What::kStopping:
      if (entry.stamp == lives_[entry.subject]) StopOn(entry.subject);
      return;
    case What::kRouterStart:
      agenda_.Happened(entry.what, 0);
      return wire_.OnRouterStarted();
    case What::kRouterGone:
      return CheckNoWorkLeft();
    case What::kDelivery:
      return;
  }
}

// ---- the router's front thread ----

void World::WakeFront() {
  if (std::exchange(front_woken_, true)) return;
  agenda_.Add(agenda_.now_us() + random_.Between(1, swarm_.front_us), What::kRouterTurn);
}

void World::FrontTurn() {
  front_woken_ = false;
  TakeFrontEvents();
  CarryOut();
}

// Handles all events, then the router's effects.
void World::TakeFrontEvents() {
  while (wire_.TakeFrontEvents(&front_events_)) {
    agenda_.Happened(What::kRouterTurn, 0, front_events_.size());
    for (FrontEvent& event : front_events_) {
      if (const auto* lost = std::get_if<StreamLost>(&event)) {
        agenda_.Trace("router: worker %x lost", lost->worker);
        lost_once_.insert(lost->worker);
        streams_->OnLost(lost->worker, now());
      } else if (const auto* reported = std::get_if<StreamReported>(&event);
                 reported != nullptr && !streams_->IsClosed(reported->worker)) {
        CheckReport(*reported);
        const absl::Status status = streams_->OnReport(reported->worker, reported->report, now());
        if (agenda_.tracing())
          agenda_.Trace("router <- %x: %s%s", reported->worker, Tell(reported->report),
                        status.ok() ? "" : ", refused: " + status.ToString());
        Require(status.ok(), "a worker broke the control protocol: %s", status.ToString());
      }
    }
    front_events_.clear();
  }
}

// A part may end as cancelled only if it was cancelled, fail only after a fault, and be preempted
// at most as often as promised.
void World::CheckReport(const StreamReported& reported) {
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
    if (part->reason == EndReason::kFailed && swarm_.calm)
      Require(reported_to || clients_.IsOver(part->request_id) ||
                  clients_.BreaksItsGrammar(part->request_id),
              "attempt %d of request %x failed although nothing went wrong: %s", part->epoch,
              part->request_id, part->message);
  }
}

// Without faults, an ended request must leave its workers soon: its parts hear of the end after a
// wire and at most one step, the two ends of its handoff agree, and the end is reported. That takes
// two more wires between the workers, a step of the other worker, and the wire to the router.
int64_t World::LongestStepUs(const WorkerPlan& worker) const {
  const double pairs = worker.max_step_tokens * (swarm_.max_prompt + swarm_.max_tokens);
  return worker.step_us + worker.token_us * worker.max_step_tokens +
         static_cast<int64_t>(worker.pair_us * pairs);
}

void World::CheckRelease(const EmitReleased& released) {
  if (!swarm_.calm) return;
  int64_t step_us = 0;
  for (const WorkerPlan& worker : swarm_.workers)
    step_us = std::max(step_us, LongestStepUs(worker));
  const int64_t wire_us = swarm_.min_delay_us + 2 * swarm_.mean_delay_us;
  const int64_t bound_us = kReleaseUs + 2 * step_us + 4 * wire_us +
                           2 * (swarm_.far_us + swarm_.front_us) + 6 * swarm_.wake_us;
  ++fault_counts_.releases;
  Require(!released.overdue && absl::ToInt64Microseconds(released.after) <= bound_us,
          "request %x ended, and its parts only %s later; the bound is %d us", released.request_id,
          absl::FormatDuration(released.after), bound_us);
}

void World::CollectEffects() {
  streams_->Collect();
  for (const auto& [worker, messages] : streams_->messages())
    for (const RouterMessage& message : messages) NoteCancel(worker, message);
  for (const RouterEffect& effect : std::exchange(streams_->emissions(), {})) {
    if (const auto* token = std::get_if<EmitToken>(&effect))
      clients_.OnToken(*token);
    else if (const auto* end = std::get_if<EmitEnd>(&effect))
      clients_.OnEnd(*end);
    else
      CheckRelease(std::get<EmitReleased>(effect));
  }
}

void World::NoteCancel(Incarnation worker, const RouterMessage& message) {
  if (const auto* cancel = std::get_if<CancelRequest>(&message))
    cancels_[{worker, cancel->request_id}] = cancel->epoch;
  // A later attempt ends the earlier ones.
  if (const auto* next = std::get_if<PrefillRequest>(&message); next && next->epoch > 1)
    cancels_[{worker, next->request_id}] = next->epoch - 1;
}

void World::CarryOut() {
  CollectEffects();
  for (auto& [worker, messages] : streams_->TakeMessages()) wire_.Send(worker, std::move(messages));
  for (const auto& [worker, reason] : streams_->TakeCloses()) {
    agenda_.Trace("router: closes worker %x: %s", worker, reason.message());
    ++fault_counts_.given_up;
    lost_once_.insert(worker);
    wire_.Close(worker);
  }
  if (router_->NextDeadline() != router_timer_) {
    router_timer_ = router_->NextDeadline();
    ++router_stamp_;
    if (router_timer_ != absl::InfiniteFuture())
      agenda_.Add(absl::ToUnixMicros(router_timer_) + 1, What::kRouterTime, 0, router_stamp_);
  }
  CheckQueues();
}

// ---- the run ----

void World::Run(const Disturbance* disturbance) {
  disturbance_ = disturbance;
  for (size_t i = 0; i < nodes_.size(); ++i) Start(static_cast<int>(i));
  agenda_.Add(agenda_.now_us() + random_.Between(0, 100'000), What::kArrival);
  agenda_.Add(agenda_.now_us() + random_.Between(0, 2 * swarm_.fault_gap_us), What::kFault);
  const int64_t script_us = swarm_.script.empty() ? 0 : swarm_.script.back().arrives_us;
  RunUntil(agenda_.now_us() + script_us + kSafetyUs, [this] { return clients_.all_submitted(); });
  const int64_t safety_us = agenda_.now_us() + random_.Magnitude(1, 5 * kSecondUs);
  RunUntil(std::max(safety_us, checks_until_us_ + 1), [this] {
    return clients_.all_ended() && disturbance_ == nullptr && agenda_.now_us() > checks_until_us_;
  });
  n_events_of_requests_ = agenda_.n_events();
  Heal();
  const int64_t limit_us = agenda_.now_us() + kLivenessUs;
  const bool all_ended =
      RunUntil(limit_us, [this] { return clients_.all_submitted() && clients_.all_ended(); });
  healing_us_ = agenda_.now_us() - limit_us + kLivenessUs;
  Require(all_ended, "requests do not end although all is healed:%s%s", clients_.DescribeRunning(),
          Describe());
  const bool quiet = RunUntil(limit_us, [this] { return IsQuiet(); });
  Require(quiet, "something is held although every request has ended:%s", Describe());
  AuditRouter();
  const bool agree = RunUntil(limit_us, [this] { return PagesAgree(); });
  Require(agree, "the router does not know what the workers have cached:%s", Describe());
  StopWorkers();
}

void World::Heal() {
  faults_on_ = false;
  agenda_.Trace("all is healed");
  network_.set_faults({});
  slow_until_us_.assign(nodes_.size(), 0);
  HealPartition();
  wire_.OnRouterStarted();
  bool any = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto node = static_cast<int>(i);
    if (nodes_[i]->alive() && nodes_[i]->paused()) {
      nodes_[i]->Resume();
      wire_.OnResumed(node);
    }
    if (nodes_[i]->alive() && nodes_[i]->stands()) {
      if (random_.Percent(50))
        Kill(node, 0);
      else
        nodes_[i]->TurnAgain();
    }
    if (nodes_[i]->alive() && nodes_[i]->stopping()) Kill(node, 0);
    if (!nodes_[i]->alive()) {
      ++lives_[i];  // voids a pending restart
      if (random_.Percent(70) || (!any && i + 1 == nodes_.size())) Start(node);
    }
    any = any || nodes_[i]->alive();
  }
}

bool World::IsQuiet() const {
  return router_->View().ending == 0 &&
         std::all_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return !node->alive() || node->IsQuiet(); });
}

void World::AuditRouter() const {
  const ClusterView view = router_->View();
  Require(view.running == 0 && view.waiting == 0 && view.kv_pages_promised == 0,
          "the router still has %d running, %d waiting, %d pages promised", view.running,
          view.waiting, view.kv_pages_promised);
}

// True if the router knows exactly the pages that the workers have.
bool World::PagesAgree() const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    if (!node.alive() || wire_.LostPages(static_cast<int>(i))) continue;
    if (router_->prefixes().PagesOf(node.incarnation()) != node.CachedPageNames()) return false;
  }
  return true;
}

void World::StopWorkers() {
  const auto each = [this](auto what) {
    for (const auto& node : nodes_)
      if (node->alive()) what(node.get());
  };
  each([](Node* node) { node->CloseEngine(); });
  RunFor(2 * kSecondUs);
  each([](Node* node) { node->ShutDownTransfer(); });
  RunFor(2 * kSecondUs);
  each([](Node* node) { node->CloseTransfer(); });
  RunFor(kSecondUs);
  each([this](Node* node) {
    node->CollectPages();
    const TransferCounters counters = node->transfer_counters();
    fault_counts_.crc_errors += counters.refused_chunks[size_t(ChunkRefusal::kPayload)];
    fault_counts_.resent_chunks += counters.resent_chunks;
    for (const uint64_t n : counters.refused_chunks) fault_counts_.refused_chunks += n;
    fault_counts_.handoffs += counters.handoffs_committed;
    fault_counts_.held_pages += counters.held_pages;
    fault_counts_.failed_handoffs += counters.handoffs_failed + counters.handoffs_cancelled;
    const WorkerMetrics worker = node->worker_metrics();
    fault_counts_.prefill_tokens += worker.prefill_tokens;
    fault_counts_.slice_blocks += worker.slice_blocks;
    fault_counts_.slice_wait_seconds += worker.slice_wait_seconds;
    fault_counts_.trimmed_pages += worker.pages_trimmed;
  });
  CountRelays();
  fault_counts_.lost_pages = wire_.n_lost_pages();
}

// Called before the router is lost.
void World::CountRelays() {
  const ClusterView view = router_->View();
  fault_counts_.relays += view.relays;
  fault_counts_.ranks_replaced += view.ranks_replaced;
  fault_counts_.sinks_replaced += view.sinks_replaced;
  fault_counts_.replaced_in_rounds += view.replaced_in_rounds;
  fault_counts_.relays_left += view.failovers[static_cast<size_t>(FailoverCause::kLate)];
  fault_counts_.relays_in_rounds += view.relays_in_rounds;
  fault_counts_.followed += view.followed;
}

void World::CheckQueues() const {
  Require(wire_.LongestQueue() < kLongestQueue, "%d events wait in one queue",
          wire_.LongestQueue());
}

std::string World::Describe() const {
  const ClusterView view = router_->View();
  std::string out =
      absl::StrFormat("\n  router: %d running, %d waiting, %d + %d workers", view.running,
                      view.waiting, view.prefill_workers, view.decode_workers);
  for (size_t i = 0; i < nodes_.size(); ++i)
    out += absl::StrFormat("\n  worker %d (%x)%s: %s", i, nodes_[i]->incarnation(),
                           wire_.Connected(static_cast<int>(i)) ? "" : " not connected",
                           nodes_[i]->Describe());
  return out;
}

// ---- one seed ----

Outcome RunSwarm(const Swarm& swarm, bool tracing, const Disturbance* disturbance) {
  Outcome outcome{.seed = swarm.seed,
                  .ttfts = {},
                  .violation = {},
                  .faults = {},
                  .clients = {},
                  .transitions = {}};
  auto world = std::make_unique<World>(swarm, tracing);
  try {
    world->Run(disturbance);
  } catch (const Violation& violation) {
    outcome.violation = violation.what();
  }
  outcome.n_events = world->agenda().n_events();
  outcome.digest = world->agenda().digest();
  outcome.n_events_of_requests = world->n_events_of_requests();
  outcome.healing_us = world->healing_us();
  outcome.faults = world->faults();
  outcome.clients = world->clients();
  outcome.ttfts = world->TimesToFirstToken();
  outcome.wanted = world->wanted();
  outcome.transitions = world->transitions();
  return outcome;
}

Outcome RunSeed(uint64_t seed, bool tracing) {
  const Swarm swarm = Swarm::Draw(seed);
  if (tracing) std::printf("%s", swarm.ToString().c_str());
  return RunSwarm(swarm, tracing);
}

}  // namespace baton::sim
