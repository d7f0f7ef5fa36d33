// A whole cluster in one thread on virtual time: one or several production Routers, and per worker
// the production WorkerCore and TransferCore over a MemLink; control streams, clients and faults
// around them. The seed decides everything.
//
// A run has two phases. Safety: requests arrive and faults happen; invariants are checked after
// every event. Liveness: all faults are healed, at least one worker lives; every request must end
// within a bound, and nothing may be held anywhere afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/agenda.h"
#include "tests/sim/clients.h"
#include "tests/sim/intruder.h"
#include "tests/sim/node.h"
#include "tests/sim/outcome.h"
#include "tests/sim/router_node.h"
#include "tests/sim/swarm.h"
#include "tests/support/mem_link.h"

namespace baton::sim {

// One fault at one event of a run.
struct Disturbance {
  enum class Kind {
    kKill,
    kStop,
    kPause,
    kStand,  // for ever
    kBreakControl,
    kSlowLink,
    kIsolate,
    kCutTransfer,
    kCancel,
    kKillRouter
  };
  Kind kind = Kind::kKill;
  int node = 0;  // one of the first seven
  uint64_t at_event = 0;
};

class World {
 public:
  World(const Swarm& swarm, bool tracing);
  ~World();

  // Throws Violation.
  void Run(const Disturbance* disturbance = nullptr);
  uint64_t n_events_of_requests() const { return n_events_of_requests_; }
  int64_t healing_us() const { return healing_us_; }
  const Agenda& agenda() const { return agenda_; }
  const FaultCounts& faults() const { return fault_counts_; }
  const TransitionCounts& transitions() const { return transitions_; }
  const ClientCounts& clients() const { return clients_.counts(); }
  std::vector<double> TimesToFirstToken() const { return clients_.TimesToFirstToken(); }
  std::vector<Foretold> Predictions() const { return clients_.Predictions(); }
  const std::vector<WantedWorkers>& wanted() const { return wanted_; }

 private:
  void NoteWanted() {
    const ClusterView view = routers_[0]->router().View();
    wanted_.push_back({.prefill = view.desired_prefill, .decode = view.desired_decode});
  }
  // Runs events until `done` holds. False: virtual time reached limit_us before.
  bool RunUntil(int64_t limit_us, const std::function<bool()>& done);
  void RunFor(int64_t us);
  void Dispatch(const Agenda::Entry& entry);

  void Arrive();
  void Cancel(RequestId id);
  RouterNode* FindRouter(RequestId id);  // whose request it is; null: that router was lost

  // Faults.
  void Fault();
  void Disturb(const Disturbance& disturbance);
  void Kill(int node, int64_t away_us);
  void Pause(int node, int64_t away_us);
  void Stand(int node, int64_t for_us);
  void CheckStanding(int node);
  void Sign(int node);
  void Stop(int node, int64_t patience_us);
  void StopOn(int node);
  void SlowDown(int node, int64_t for_us);
  RouterNode& AnyRouter();
  void CheckNoWorkLeft() const;
  void Partition();
  // Cuts the machines of `here` from the others; the last indices are the routers'.
  void Split(const std::vector<bool>& here, bool with_routers, bool out, bool in);
  void HealPartition();
  void Start(int node);
  int AnyNode(bool running);  // -1: none
  void BlockLinks();

  void Heal();
  bool IsQuiet() const;
  void StopWorkers();
  std::string Describe() const;
  absl::Time now() const { return absl::FromUnixMicros(agenda_.now_us()); }

  const Swarm swarm_;
  TransitionCounts transitions_;
  SimRandom random_;
  SimRandom router_ids_;
  Agenda agenda_;
  MemNetwork network_;
  Intruder intruder_{&network_};
  std::vector<std::unique_ptr<Node>> nodes_;
  Clients clients_;
  SimRandom router_choice_;  // apart, so that a run with one router is as it was
  std::vector<std::unique_ptr<RouterNode>> routers_;
  std::vector<uint64_t> lives_;
  std::vector<int64_t> slow_until_us_;      // index: worker; until then its links are slow
  std::vector<int64_t> patience_until_us_;  // index: worker that was told to stop
  std::vector<std::vector<bool>> blocked_;  // [from][to], the last indices are the routers'
  bool faults_on_ = true;
  int n_faults_ = 0;
  const Disturbance* disturbance_ = nullptr;  // not yet applied
  uint64_t n_events_of_requests_ = 0, n_turns_ = 0;
  int64_t healing_us_ = 0;
  int64_t checks_until_us_ = 0;  // of engines that stand still
  std::vector<WantedWorkers> wanted_;
  FaultCounts fault_counts_;
};

Outcome RunSeed(uint64_t seed, bool tracing = false);
Outcome RunSwarm(const Swarm& swarm, bool tracing = false,
                 const Disturbance* disturbance = nullptr);

}  // namespace baton::sim
