// One worker process of the simulation: the production WorkerCore and TransferCore with their
// mailboxes, as EngineThread and the link thread drive them, on virtual time. It may be killed,
// started again as a new incarnation, stopped and continued.
//
// Checked after every turn: each page of the pool is free, a prompt's, a sequence's or lent; what
// is lent is at the link side; no step and no landing chunk writes a page of somebody else.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kvtransfer/protocol/transfer_core.h"
#include "tests/sim/agenda.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/swarm.h"
#include "tests/support/mem_link.h"
#include "worker/worker_core.h"

namespace baton::sim {

class Node {
 public:
  using Reporter = std::function<void(WorkerReport, int64_t at_us)>;
  Node(int index, const Swarm& swarm, Agenda* agenda, SimRandom* random, MemNetwork* network,
       Reporter report, TransitionCounts* transitions);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // --- the process
  void Start(uint64_t random_id);
  void Kill();
  void Pause();
  void Resume();
  // SIGTERM: drains, and then goes on as worker_process and Worker::Stop do, one step per call of
  // StopOn. patience_over: what runs is ended. True: all came back, the process is over.
  void Drain();
  bool StopOn(bool patience_over);
  bool stopping() const { return stage_ != Stage::kServing; }
  bool disconnected() const { return stage_ > Stage::kClosing; }  // from the router, by itself
  bool alive() const { return core_ != nullptr; }
  bool paused() const { return paused_; }
  Incarnation incarnation() const { return incarnation_; }
  const WorkerPlan& plan() const { return plan_; }
  WorkerAnnounce announce() const;
  const MemLink* link() const { return link_.get(); }

  // --- events
  void Post(RouterEvent event);
  void EngineTurn(uint64_t stamp);
  void LinkTurn(uint64_t stamp);
  void LandingWrite(OperationId operation);
  void PostedWrite(OperationId operation, const std::byte* at, uint64_t n_bytes);

  // --- the end
  bool IsQuiet() const;  // no request, no handoff, all pages free or in the stock
  bool has_work() const { return !core_->IsQuiet(); }
  // As Worker::Stop does, in three parts with time between them.
  void CloseEngine();
  void ShutDownTransfer();
  void CloseTransfer();
  void CollectPages();
  const TransferCounters& transfer_counters() const { return transfer_->counters(); }
  WorkerMetrics worker_metrics() const { return core_->metrics(); }
  std::string Describe() const;

 private:
  using EngineEvent = std::variant<RouterEvent, TransferEvent>;
  // Of a process that was told to stop; a worker serves, drains, ends what is left, and lets go of
  // its handoffs and connections.
  enum class Stage { kServing, kDraining, kClosing, kShuttingDown, kDisconnecting };
  // Who has each page, as seen from outside: by what crosses between the threads. kInflow: the
  // engine's, but a relay's inflow lands in it.
  enum class Holder : uint8_t { kEngine, kLink, kInflow };
  using PagesOfTicket = std::map<std::pair<uint64_t, uint64_t>, std::vector<int32_t>>;
  struct TimedCommand {
    int64_t at_us;
    TransferCommand command;
  };

  void WakeEngine(int64_t at_us);
  void WakeLink(int64_t at_us);
  int64_t WakeDelay() { return random_->Between(1, swarm_.wake_us); }
  void OnCommand(TransferCommand command);  // from the engine
  void HandleCommand(TransferCommand command);
  void OnTransferEvent(TransferEvent event);
  // An inflow's last word takes its pages from this side's inflows.
  void NoteInflow(const TransferEvent& event, PagesOfTicket* inflows, std::vector<Holder>* side);
  void HandleAtEngine(EngineEvent event);
  void Enter(Stage stage);
  void CheckStep(const StepBatch& batch);
  void CheckEntry(int32_t entry, int index, int first_position) const;
  std::vector<int32_t> PagesAt(const std::byte* at, uint64_t n_bytes) const;
  void CheckEngine() const;
  void CheckLink() const;

  const int index_;
  const Swarm& swarm_;
  const WorkerPlan plan_;
  Agenda* const agenda_;
  SimRandom* const random_;
  MemNetwork* const network_;
  const Reporter report_;
  TransitionCounts* const transitions_;

  // Of this life.
  Incarnation incarnation_ = 0;
  bool paused_ = false;
  Stage stage_ = Stage::kServing;
  int64_t stage_since_us_ = 0;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<SimEngine> engine_;
  std::unique_ptr<MemLink> link_;
  std::unique_ptr<TransferCore> transfer_;
  std::unique_ptr<WorkerCore> core_;
  std::deque<EngineEvent> engine_inbox_;
  std::deque<TimedCommand> link_inbox_;
  std::vector<LinkEvent> link_events_;
  bool in_link_ = false;
  int64_t clock_us_ = 0;  // the engine thread's: ahead of the world's while a step runs

  // The next turn of each thread; an entry of the agenda with another stamp is void.
  uint64_t stamp_ = 0;
  int64_t engine_at_us_ = INT64_MAX, link_at_us_ = INT64_MAX;
  uint64_t engine_stamp_ = 0, link_stamp_ = 0;
  int idle_ticks_ = 0;

  std::vector<Holder> engine_side_;              // by page; kLink: lent, as the engine knows
  std::vector<Holder> link_side_;                // the same as the link thread knows
  std::vector<uint32_t> turns_;                  // how often the page went to the link side
  PagesOfTicket engine_inflows_, link_inflows_;  // awaited, and not at their last word
  int link_pages_ = 0;
  std::map<OperationId, std::vector<std::pair<int32_t, uint32_t>>> posted_;  // pages and their turn
  enum class InStep { kNot, kRead, kWritten };
  std::vector<InStep> in_step_;  // by page, while a step is checked
  // Pages a handoff was told to send, by its ticket: untouched until it has ended.
  PagesOfTicket sending_;
};

}  // namespace baton::sim
