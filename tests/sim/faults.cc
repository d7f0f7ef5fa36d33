// World, second part: the faults.
#include <algorithm>

#include "tests/sim/violation.h"
#include "tests/sim/world.h"

namespace baton::sim {
namespace {

constexpr int64_t kLongestOutageUs = 8'000'000;

}  // namespace

void World::Fault() {
  if (!faults_on_ || n_faults_++ >= swarm_.max_faults) return;
  agenda_.Add(agenda_.now_us() + random_.Between(1, 2 * swarm_.fault_gap_us), What::kFault);
  std::vector<void (*)(World*)> menu;
  if (swarm_.kills)
    menu.push_back([](World* w) {
      SimRandom& random = w->random_;
      // Some workers stay away until all faults are healed.
      const auto away_us = [&random] {
        return random.Percent(10) ? 1000 * kLongestOutageUs
                                  : random.Magnitude(100, kLongestOutageUs);
      };
      if (random.Percent(15)) {  // all workers at the same time
        for (size_t i = 0; i < w->nodes_.size(); ++i)
          if (w->nodes_[i]->alive()) w->Kill(static_cast<int>(i), away_us());
      } else if (const int node = w->AnyNode(false); node >= 0) {
        w->Kill(node, away_us());
      }
    });
  if (swarm_.pauses)
    menu.push_back([](World* w) {
      const int node = w->AnyNode(true);
      if (node >= 0) w->Pause(node, w->random_.Magnitude(100, kLongestOutageUs));
    });
  if (swarm_.stops)
    menu.push_back([](World* w) {
      const int node = w->AnyNode(true);
      if (node >= 0 && !w->nodes_[node]->stopping())
        w->Stop(node, w->random_.Magnitude(1'000, kLongestOutageUs));
    });
  if (swarm_.router_restarts)
    menu.push_back([](World* w) {
      RouterNode& router = w->AnyRouter();
      router.Kill(w->random_.Magnitude(100, kLongestOutageUs));
    });
  if (swarm_.partitions) menu.push_back([](World* w) { w->Partition(); });
  if (swarm_.control_breaks)
    menu.push_back([](World* w) { w->fault_counts_.breaks += w->AnyRouter().wire().BreakAny(); });
  if (swarm_.cuts) menu.push_back([](World* w) { w->fault_counts_.cuts += w->network_.CutAny(); });
  if (swarm_.clogs)
    menu.push_back([](World* w) {
      const auto node = static_cast<int>(w->random_.Below(w->nodes_.size()));
      w->AnyRouter().wire().Clog(node, w->agenda_.now_us() + w->random_.Magnitude(100, 4'000'000));
      ++w->fault_counts_.clogs;
    });
  if (swarm_.slow_links)
    menu.push_back([](World* w) {
      w->SlowDown(static_cast<int>(w->random_.Below(w->nodes_.size())),
                  w->random_.Magnitude(10'000, kLongestOutageUs));
    });
  if (swarm_.stands)
    menu.push_back([](World* w) {
      const int node = w->AnyNode(true);
      if (node < 0 || w->nodes_[node]->stands()) return;
      // Some stand still until all faults are healed.
      w->Stand(node, w->random_.Percent(30) ? 1000 * kLongestOutageUs
                                            : w->random_.Magnitude(100, kLongestOutageUs));
    });
  if (menu.empty()) return;
  const size_t pick = random_.Below(menu.size());
  agenda_.Happened(What::kFault, static_cast<int>(pick));
  agenda_.Trace("fault %d", pick);
  menu[pick](this);
}

int World::AnyNode(bool running) {
  std::vector<int> nodes;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i]->alive() && (!running || !nodes_[i]->paused()))
      nodes.push_back(static_cast<int>(i));
  return nodes.empty() ? -1 : nodes[random_.Below(nodes.size())];
}

RouterNode& World::AnyRouter() {
  return swarm_.n_routers == 1 ? *routers_[0] : *routers_[random_.Below(routers_.size())];
}

void World::Start(int node) {
  ++lives_[node];
  agenda_.Happened(What::kRestart, node);
  nodes_[node]->Start(random_.Next());
  agenda_.Trace("worker %d: starts as %x", node, nodes_[node]->incarnation());
  BlockLinks();
  for (auto& router : routers_) router->wire().StartDialling(node);
  if (swarm_.stands) Sign(node);
}

// As ControlClient does for a quiet stream.
void World::Sign(int node) {
  constexpr int64_t kSignUs = 400'000;
  agenda_.Add(agenda_.now_us() + kSignUs, What::kSign, node, lives_[node]);
  if (nodes_[node]->paused()) return;
  for (auto& router : routers_) router->wire().Sign(node, agenda_.now_us());
}

void World::Kill(int node, int64_t away_us) {
  ++fault_counts_.kills;
  agenda_.Trace("worker %d: killed", node);
  nodes_[node]->Kill();
  for (auto& router : routers_) router->wire().OnKilled(node);
  ++lives_[node];
  agenda_.Add(agenda_.now_us() + away_us, What::kRestart, node, lives_[node]);
}

void World::Pause(int node, int64_t away_us) {
  ++fault_counts_.pauses;
  agenda_.Trace("worker %d: stopped", node);
  nodes_[node]->Pause();
  for (auto& router : routers_) router->wire().OnPaused(node);
  agenda_.Add(agenda_.now_us() + away_us, What::kResume, node, lives_[node]);
}

void World::Stand(int node, int64_t for_us) {
  ++fault_counts_.stands;
  agenda_.Trace("worker %d: its engine stands still", node);
  nodes_[node]->Stand();
  agenda_.Add(agenda_.now_us() + for_us, What::kTurnAgain, node, lives_[node]);
  constexpr int64_t kNoticedUs = 6'000'000;  // twice 2 s, two signs, and slow wires
  if (!swarm_.stands_alone || for_us <= kNoticedUs) return;
  checks_until_us_ = agenda_.now_us() + kNoticedUs;
  agenda_.Add(checks_until_us_, What::kStandCheck, node, lives_[node]);
}

// Every router has given the worker nothing for a while, and its requests are elsewhere.
void World::CheckStanding(int node) {
  const int64_t min_us = absl::ToInt64Microseconds(swarm_.router.engine_patience);
  if (nodes_[node]->TurnAt(agenda_.now_us()).PatienceUs(min_us) > min_us) return;
  ++fault_counts_.stands_checked;
  for (const auto& router : routers_)
    for (const WorkerView& worker : router->router().Workers())
      Require(
          worker.name != nodes_[node]->announce().name || (worker.standing && worker.requests == 0),
          "the engine of worker %d has stood still for 6 s, and the worker has %d requests", node,
          worker.requests);
}

void World::Stop(int node, int64_t patience_us) {
  ++fault_counts_.stops;
  agenda_.Trace("worker %d: told to stop", node);
  nodes_[node]->Drain();
  patience_until_us_[node] = agenda_.now_us() + patience_us;
  StopOn(node);
}

// Messages to this worker take a hundred times as long.
void World::SlowDown(int node, int64_t for_us) {
  ++fault_counts_.slow_links;
  agenda_.Trace("worker %d: its link is slow", node);
  slow_until_us_[static_cast<size_t>(node)] = agenda_.now_us() + for_us;
}

void World::StopOn(int node) {
  constexpr int64_t kLookUs = 20'000;
  Node* const worker = nodes_[node].get();
  const bool was_connected = !worker->disconnected();
  const bool acts = !worker->paused() && !worker->stands();
  if (acts && worker->StopOn(agenda_.now_us() >= patience_until_us_[node])) {
    agenda_.Happened(What::kStopping, node);
    return Kill(node, random_.Magnitude(100, kLongestOutageUs));  // the process has ended
  }
  if (was_connected && worker->disconnected())
    for (auto& router : routers_) router->wire().OnKilled(node);
  agenda_.Add(agenda_.now_us() + kLookUs, What::kStopping, node, lives_[node]);
}

// Where there is another router, its work may be left.
void World::CheckNoWorkLeft() const {
  if (swarm_.n_routers > 1) return;
  for (size_t i = 0; i < nodes_.size(); ++i)
    Require(!nodes_[i]->alive() || !nodes_[i]->has_work(),
            "worker %d still has work of a router that is gone", i);
}

void World::Partition() {
  const size_t n = nodes_.size();
  std::vector<bool> here(blocked_.size(), false);
  if (random_.Percent(50)) {  // isolate one worker
    here[random_.Below(n)] = true;
  } else {
    for (auto machine = here.begin(); machine != here.end(); ++machine)
      *machine = random_.Percent(50);
  }
  Split(here, random_.Percent(50), random_.Percent(75), random_.Percent(75));
  agenda_.Add(agenda_.now_us() + random_.Magnitude(1'000, kLongestOutageUs), What::kHeal);
}

void World::Split(const std::vector<bool>& here, bool with_routers, bool out, bool in) {
  const size_t n = nodes_.size();
  for (size_t from = 0; from < here.size(); ++from)
    for (size_t to = 0; to < here.size(); ++to)
      blocked_[from][to] = here[from] != here[to] && (with_routers || (from < n && to < n)) &&
                           (here[from] ? out : in);
  ++fault_counts_.partitions;
  agenda_.Trace("partition%s", with_routers ? ", routers too" : "");
  BlockLinks();
  for (size_t router = 0; router < routers_.size(); ++router)
    for (size_t i = 0; i < n; ++i)
      routers_[router]->wire().SetBlocked(static_cast<int>(i), blocked_[i][n + router],
                                          blocked_[n + router][i]);
}

void World::Disturb(const Disturbance& disturbance) {
  const int node = disturbance.node;
  constexpr int64_t kAwayUs = 7'000'000;  // longer than any timeout for a peer
  switch (disturbance.kind) {
    case Disturbance::Kind::kKill:
      return Kill(node, kAwayUs);
    case Disturbance::Kind::kStop:
      return Stop(node, kAwayUs);
    case Disturbance::Kind::kPause:
      return Pause(node, kAwayUs);
    case Disturbance::Kind::kStand:
      return Stand(node, 1000 * kAwayUs);
    case Disturbance::Kind::kBreakControl:
      return AnyRouter().wire().Break(node);
    case Disturbance::Kind::kSlowLink:
      return SlowDown(node, kAwayUs);
    case Disturbance::Kind::kCutTransfer:
      fault_counts_.cuts += network_.CutAny();
      return;
    case Disturbance::Kind::kKillRouter:
      // Workers cancel the requests of a lost router within 2 s.
      agenda_.Add(agenda_.now_us() + 2'000'000, What::kRouterGone);
      return AnyRouter().Kill(kAwayUs);
    case Disturbance::Kind::kIsolate: {
      std::vector<bool> here(blocked_.size(), false);
      here[static_cast<size_t>(node)] = true;
      Split(here, true, true, true);
      agenda_.Add(agenda_.now_us() + kAwayUs, What::kHeal);
      return;
    }
    case Disturbance::Kind::kCancel:
      if (const RequestId id = clients_.AnyRunning(); id != 0) {
        Cancel(id);
      }
      return;
  }
}

void World::BlockLinks() {
  network_.UnblockAll();
  for (size_t from = 0; from < nodes_.size(); ++from)
    for (size_t to = 0; to < nodes_.size(); ++to)
      if (blocked_[from][to] && nodes_[from]->alive() && nodes_[to]->alive())
        network_.Block(nodes_[from]->link(), nodes_[to]->link());
}

void World::HealPartition() {
  agenda_.Happened(What::kHeal, 0);
  for (auto& row : blocked_) std::fill(row.begin(), row.end(), false);
  BlockLinks();
  for (auto& router : routers_)
    for (size_t i = 0; i < nodes_.size(); ++i)
      router->wire().SetBlocked(static_cast<int>(i), false, false);
}

}  // namespace baton::sim
