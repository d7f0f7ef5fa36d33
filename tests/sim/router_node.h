// One router process of the simulation: the production Router with its streams' end, on a front
// thread that wakes late, and the control streams between it and all workers. It may be killed; the
// next life knows nothing. Checks what workers report and when ended requests leave them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/router.h"
#include "router/worker_streams.h"
#include "tests/sim/agenda.h"
#include "tests/sim/clients.h"
#include "tests/sim/control_wire.h"
#include "tests/sim/node.h"
#include "tests/sim/outcome.h"
#include "tests/sim/swarm.h"

namespace baton::sim {

class RouterNode {
 public:
  // Parts of the run, which outlive the router.
  struct Surroundings {
    const Swarm& swarm;
    Agenda* agenda;
    SimRandom* random;
    uint64_t (*next_id)();
    std::vector<std::unique_ptr<Node>>* workers;
    Clients* clients;
    TransitionCounts* transitions;
    FaultCounts* counts;
  };
  RouterNode(int index, const Surroundings& run);
  RouterNode(const RouterNode&) = delete;
  RouterNode& operator=(const RouterNode&) = delete;

  Router& router() { return *router_; }
  const Router& router() const { return *router_; }
  ControlWire& wire() { return wire_; }
  const ControlWire& wire() const { return wire_; }

  void FrontTurn();
  void OnTimer(uint64_t stamp);
  void CarryOut();  // effects of what was called
  // Loses its clients' requests; workers find it again when it is started.
  void Kill(int64_t away_us);
  void CountRelays() const;  // also before it is lost

  void Audit() const;       // nothing runs or is promised any more
  bool PagesAgree() const;  // it knows exactly the pages that the workers have
  std::string Describe() const;

 private:
  void Begin();
  void WakeFront();
  void TakeFrontEvents();
  void CheckReport(const StreamReported& reported);
  int64_t LongestStepUs(const WorkerPlan& worker) const;
  void CheckRelease(const EmitReleased& released);
  void CollectEffects();
  void NoteCancel(Incarnation worker, const RouterMessage& message);
  absl::Time now() const { return absl::FromUnixMicros(run_.agenda->now_us()); }

  const int index_;
  const Surroundings run_;
  ControlWire wire_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<WorkerStreams> streams_;  // the router's
  std::deque<FrontEvent> front_events_;
  bool front_woken_ = false;
  absl::Time timer_ = absl::InfiniteFuture();
  uint64_t stamp_ = 0;
  // The router's cancels: (worker, request) to the last epoch; and workers that lost a stream,
  // which cancel everything of it themselves.
  std::map<std::pair<Incarnation, RequestId>, Epoch> cancels_;
  std::set<Incarnation> lost_once_;
  std::map<RequestId, int> preemptions_;
};

}  // namespace baton::sim
