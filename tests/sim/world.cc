#include "tests/sim/world.h"

#include <algorithm>
#include <utility>

#include "tests/sim/violation.h"

namespace baton::sim {
namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kSafetyUs = 60 * kSecondUs;
// Enough for the slowest wires with the smallest windows, and less than any timer that ends a wait
// for room, pages or a turn (ten minutes), so that no such timer hides a hang.
constexpr int64_t kLivenessUs = 400 * kSecondUs;
constexpr uint64_t kMaxTurns = 5'000'000;  // turns of the loop; a run has a few thousand

// Router takes a plain function, so the ids come from the run of this thread.
thread_local SimRandom* ids_of_run = nullptr;
uint64_t NextId() { return ids_of_run->Next(); }

}  // namespace

World::World(const Swarm& swarm, bool tracing)
    : swarm_(swarm),
      random_(swarm.seed),
      router_ids_(swarm.seed ^ 0x1d5),
      agenda_(&random_, tracing),
      network_(MemNetwork::Mode::kDeterministic, swarm.seed),
      clients_(swarm_, &agenda_, &random_),
      router_choice_(swarm.seed ^ 0x63686f696365) {
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
  const size_t n_machines = n + static_cast<size_t>(swarm_.n_routers);
  blocked_.assign(n_machines, std::vector<bool>(n_machines, false));
  for (size_t i = 0; i < n; ++i)
    nodes_.push_back(std::make_unique<Node>(
        static_cast<int>(i), swarm_, &agenda_, &random_, &network_,
        [this, i](uint64_t stream, const WorkerReport& report, int64_t at_us) {
          for (auto& router : routers_)
            router->wire().Report(static_cast<int>(i), stream, report, at_us);
        },
        &transitions_));
  for (int i = 0; i < swarm_.n_routers; ++i)
    routers_.push_back(
        std::make_unique<RouterNode>(i, RouterNode::Surroundings{.swarm = swarm_,
                                                                 .agenda = &agenda_,
                                                                 .random = &random_,
                                                                 .next_id = NextId,
                                                                 .workers = &nodes_,
                                                                 .clients = &clients_,
                                                                 .transitions = &transitions_,
                                                                 .counts = &fault_counts_}));
}

World::~World() { nodes_.clear(); }

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
  const auto wire = [&]() -> ControlWire& {
    return routers_[static_cast<size_t>(entry.subject / ControlWire::kWorkers)]->wire();
  };
  const int worker = entry.subject % ControlWire::kWorkers;
  switch (entry.what) {
    case What::kEngineTurn:
      return nodes_[entry.subject]->EngineTurn(entry.stamp);
    case What::kDevice:
      return nodes_[entry.subject]->DeviceDone(entry.stamp);
    case What::kCopy:
      return nodes_[entry.subject]->CopierDone(entry.stamp);
    case What::kLinkTurn:
      return nodes_[entry.subject]->LinkTurn(entry.stamp);
    case What::kControlUp:
      return wire().DeliverUp(entry.stamp);
    case What::kControlDown:
      return wire().DeliverDown(entry.stamp);
    case What::kKeepalive:
      return wire().KeepaliveCheck(entry.stamp, worker);
    case What::kDial:
      return wire().Dial(worker, entry.stamp);
    case What::kRouterTurn:
      return routers_[entry.subject]->FrontTurn();
    case What::kRouterTime:
      return routers_[entry.subject]->OnTimer(entry.stamp);
    case What::kArrival:
      agenda_.Happened(entry.what, 0);
      intruder_.Try();
      return Arrive();
    case What::kCancel: {
      const RequestId id = clients_.IdToCancel(entry.subject);
      agenda_.Happened(entry.what, entry.subject);
      agenda_.Trace("client %x: cancel", id);
      return Cancel(id);
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
      for (auto& router : routers_) router->wire().OnResumed(entry.subject);
      return;
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
      agenda_.Happened(entry.what, entry.subject);
      return routers_[entry.subject]->wire().OnRouterStarted();
    case What::kRouterGone:
      return CheckNoWorkLeft();
    case What::kDelivery:
      return;
  }
}

// ---- requests ----

// A service in front of the routers gives the request to any of them.
void World::Arrive() {
  RouterNode& router =
      swarm_.n_routers == 1 ? *routers_[0] : *routers_[router_choice_.Below(routers_.size())];
  clients_.Arrive(
      [&](GenerateRequest request) { return router.router().Submit(std::move(request), now()); });
  NoteWanted();
  router.CarryOut();
}

void World::Cancel(RequestId id) {
  clients_.NoteCancelled(id);
  RouterNode* const router = FindRouter(id);
  if (router == nullptr) return;
  router->router().Cancel(id, now());
  router->CarryOut();
}

RouterNode* World::FindRouter(RequestId id) {
  for (auto& router : routers_)
    if (router->router().id() == RouterOf(id)) return router.get();
  return nullptr;
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
  for (const auto& router : routers_) router->Audit();
  const bool agree = RunUntil(limit_us, [this] {
    return std::all_of(routers_.begin(), routers_.end(),
                       [](const auto& router) { return router->PagesAgree(); });
  });
  Require(agree, "a router does not know what the workers have cached:%s", Describe());
  StopWorkers();
}

void World::Heal() {
  faults_on_ = false;
  agenda_.Trace("all is healed");
  network_.set_faults({});
  slow_until_us_.assign(nodes_.size(), 0);
  HealPartition();
  for (auto& router : routers_) router->wire().OnRouterStarted();
  bool any = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto node = static_cast<int>(i);
    if (nodes_[i]->alive() && nodes_[i]->paused()) {
      nodes_[i]->Resume();
      for (auto& router : routers_) router->wire().OnResumed(node);
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
  return std::all_of(routers_.begin(), routers_.end(),
                     [](const auto& router) { return router->router().View().ending == 0; }) &&
         std::all_of(nodes_.begin(), nodes_.end(),
                     [](const auto& node) { return !node->alive() || node->IsQuiet(); });
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
  for (const auto& router : routers_) {
    router->CountRelays();
    fault_counts_.lost_pages += router->wire().n_lost_pages();
  }
}

std::string World::Describe() const {
  std::string out;
  for (const auto& router : routers_) out += router->Describe();
  for (size_t i = 0; i < nodes_.size(); ++i)
    out += absl::StrFormat("\n  worker %d (%x): %s", i, nodes_[i]->incarnation(),
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
  outcome.foretold = world->Predictions();
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
