// One worker process of the simulation: the production WorkerCore and TransferCore with their
// mailboxes, as EngineThread and the link thread run them, on virtual time. It may be killed,
// started again as a new incarnation, stopped and continued.
//
// Checked after every turn: each page of the pool is free, a prompt's, a sequence's or lent; lent
// pages are at the link side; no step, landing chunk or copy writes a page of another holder.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kvtransfer/protocol/transfer_core.h"
#include "lab/whole_planes.h"
#include "tests/sim/agenda.h"
#include "tests/sim/late_engine.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/swarm.h"
#include "tests/support/late_copier.h"
#include "tests/support/mem_link.h"
#include "worker/worker_core.h"

namespace baton::sim {

class Node {
 public:
  using Reporter = std::function<void(uint64_t stream, WorkerReport, int64_t at_us)>;
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
  // The engine thread stands still in a turn, or turns again; all other threads live.
  void Stand();
  void TurnAgain();
  bool stands() const { return stands_; }
  baton::EngineTurn TurnAt(int64_t at_us) const;  // as its reports tell
  // SIGTERM: Drain drains; each call of StopOn does one more step of what worker_process and
  // Worker::Stop do then. patience_over: requests that still run are ended. True: all pages came
  // back, the process has ended.
  void Drain();
  bool StopOn(bool patience_over);
  bool stopping() const { return stage_ != Stage::kServing; }
  bool disconnected() const { return stage_ > Stage::kClosing; }  // this worker left its routers
  bool alive() const { return core_ != nullptr; }
  bool paused() const { return paused_; }
  Incarnation incarnation() const { return incarnation_; }
  const WorkerPlan& plan() const { return plan_; }
  const WorkerAnnounce& announce() const { return announce_; }  // of its present life
  const MemLink* link() const { return link_.get(); }

  // --- events
  void Post(RouterEvent event);
  void EngineTurn(uint64_t stamp);
  void DeviceDone(uint64_t stamp);
  void CopierDone(uint64_t stamp);
  void LinkTurn(uint64_t stamp);
  void LandingWrite(OperationId operation);
  void PostedWrite(OperationId operation, const std::byte* at, uint64_t n_bytes);

  // --- the end
  bool IsQuiet() const;  // no request, no handoff, no held cell, all pages free or lent
  bool has_work() const { return !core_->IsQuiet(); }
  std::vector<PageName> CachedPageNames() const { return core_->index()->Names(); }
  // The three parts of Worker::Stop, with time between them.
  void CloseEngine();
  void ShutDownTransfer();
  void CloseTransfer();
  void CollectPages();
  const TransferCounters& transfer_counters() const { return transfer_->counters(); }
  WorkerMetrics worker_metrics() const { return core_->metrics(); }
  std::string Describe() const;

 private:
  using EngineEvent = std::variant<RouterEvent, TransferEvent>;
  // Stages of a process that was told to stop: a worker serves, drains, ends the remaining
  // requests, and gives up its handoffs and connections.
  enum class Stage { kServing, kDraining, kClosing, kShuttingDown, kDisconnecting };
  // The holder of each page as seen from outside, by the messages between the threads. kInflow:
  // held by the engine, but a relay's inflow lands in it.
  enum class Holder : uint8_t { kEngine, kLink, kInflow };
  using PagesOfTicket = std::map<std::pair<uint64_t, uint64_t>, std::vector<int32_t>>;
  struct TimedCommand {
    int64_t at_us;
    TransferCommand command;
  };

  struct TimedCompile {
    int64_t at_us;
    GrammarCompiled compiled;
  };

  void WakeEngine(int64_t at_us);
  void WakeLink(int64_t at_us);
  int64_t WakeDelay() { return random_->Between(1, swarm_.wake_us); }
  void OnCommand(TransferCommand command);  // command of the engine, filtered
  void OnCompile(GrammarJob job);
  void TakeCompiled();
  void MakeEngine();
  void RunDevice();                          // unless it runs
  std::unique_ptr<CellCopier> MakeCopier();  // null: KV is copied on return
  void RunCopier();                          // unless it runs, or can do nothing
  void HandleCommand(TransferCommand command);
  void OnTransferEvent(TransferEvent event);
  // When an inflow has ended: marks its pages as the engine's in `side` and removes it from
  // `inflows`.
  void NoteInflow(const TransferEvent& event, PagesOfTicket* inflows, std::vector<Holder>* side);
  void HandleAtEngine(EngineEvent event);
  void Enter(Stage stage);
  void CheckStep(const StepBatch& batch);
  void CheckEntry(int32_t entry, int index, int first_position) const;
  std::vector<int32_t> PagesAt(const std::byte* at, uint64_t n_bytes) const;
  void NoteSalts(const RouterEvent& event);
  void CheckHeld(const LendHeld& lend) const;
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

  // The current process's.
  Incarnation incarnation_ = 0;
  WorkerAnnounce announce_;
  bool paused_ = false, stands_ = false;
  uint64_t n_turns_ = 0;
  int64_t turn_since_us_ = 0;  // of the last turn, which lasts until clock_us_, or while stands_
  absl::Duration expected_;    // of its step
  Stage stage_ = Stage::kServing;
  int64_t stage_since_us_ = 0;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Backend> engine_;
  LateEngine* late_ = nullptr;    // `engine_`, if it computes later
  int64_t device_us_ = 0;         // end of the operation that the device computes
  uint64_t device_stamp_ = 0;     // of its entry in the agenda; 0: the device is idle
  LateCopier* copier_ = nullptr;  // of `transfer_`, if KV is copied later
  uint64_t copier_stamp_ = 0;     // as device_stamp_
  std::unique_ptr<MemLink> link_;
  std::unique_ptr<TransferCore> transfer_;
  std::unique_ptr<WorkerCore> core_;
  std::unique_ptr<WholePlanes> filter_;  // of commands; null: heads cut through
  std::deque<EngineEvent> engine_inbox_;
  std::deque<TimedCompile> compiles_;  // in the order of their ends
  std::set<std::string> compiled_;     // texts of grammars
  std::deque<TimedCommand> link_inbox_;
  std::vector<LinkEvent> link_events_;
  bool in_link_ = false;
  int64_t clock_us_ = 0;  // the engine thread's: ahead of the world's while a step runs

  // The next turn of each thread. An entry of the agenda with another stamp is void.
  uint64_t stamp_ = 0;
  int64_t engine_at_us_ = INT64_MAX, link_at_us_ = INT64_MAX;
  uint64_t engine_stamp_ = 0, link_stamp_ = 0;
  int idle_ticks_ = 0;

  std::vector<Holder> engine_side_;              // index: page; kLink: lent, as the engine sees it
  std::vector<Holder> link_side_;                // index: page; times that it went to the link side
  std::vector<uint32_t> turns_;                  // index: page; times that it went to the link side
  PagesOfTicket engine_inflows_, link_inflows_;  // awaited, not ended
  std::vector<int> link_reads_;  // index: page; promises that it is lent for with its KV
  int link_pages_ = 0;
  std::map<OperationId, std::vector<std::pair<int32_t, uint32_t>>> posted_;  // pages, turns
  enum class InStep { kNot, kRead, kWritten };
  std::vector<InStep> in_step_;  // index: page; used while a step is checked
  // Pages that each ticket's handoff must send; they stay unchanged until the handoff ends.
  PagesOfTicket sending_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> salts_;  // of requests decoded here, by ticket
};

}  // namespace baton::sim
