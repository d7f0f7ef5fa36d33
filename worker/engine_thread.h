// The thread that owns a worker's backend, pool and WorkerCore. Everyone else posts events into its
// mailbox; it sleeps on that mailbox when there is nothing to compute. Knows no UCX and no gRPC:
// commands and reports leave through two functions.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/mailbox.h"
#include "common/mailbox_thread.h"
#include "common/token_grammar.h"
#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "proto/control_client.h"
#include "worker/engine_pulse.h"
#include "worker/grammar_desk.h"
#include "worker/mask_thread.h"
#include "worker/worker_core.h"
#include "worker/worker_metrics.h"

namespace baton {

class EngineThread {
 public:
  // Backend and pool outlive this object. ports: called on the engine thread.
  // `compile` is called on a thread of its own; null: requests with grammars are refused.
  EngineThread(const WorkerCoreOptions& options, const WorkerFacts& facts, Backend* backend,
               KvPool* pool, WorkerPorts ports, GrammarCompilerFn compile = nullptr);
  ~EngineThread();  // after Close, if Start was called
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void Start();

  // --- any thread
  [[nodiscard]] bool Post(RouterEvent event);  // false: no room
  void Post(TransferEvent event);              // bounded by tickets, pages and time
  // As of the last turn; but `engine` as of now, also while the engine stands still.
  WorkerMetrics metrics() const;
  EngineTurn turn() const;  // what the engine does now; never waits for it
  // Has running requests finish and new ones refused. `drained` is called once, when nothing runs
  // any more, on the engine thread; must only post.
  void Drain(std::function<void()> drained);

  // --- the thread that called Start
  // Cancels everything and joins, after at most two seconds of waiting for handoffs to end.
  void Close();
  // Called after Close, once the transfer room is gone: takes the transfer room's last events and
  // CHECKs that every page came back.
  void CollectPages();

 private:
  struct DrainNow {
    std::function<void()> drained;
  };
  struct CloseNow {};
  struct FenceReached {};  // a turn finds which
  using Event =
      std::variant<RouterEvent, TransferEvent, GrammarCompiled, DrainNow, CloseNow, FenceReached>;

  WorkerPorts Ports(WorkerPorts ports, GrammarCompilerFn compile);
  void Run();
  void HandleAll(std::vector<Event>* events);
  void Publish();

  Backend* const backend_;
  Mailbox<Event> inbox_;
  EnginePulse pulse_;
  MaskThread masks_;
  std::optional<MailboxThread<GrammarJob>> grammars_;  // empty: this worker compiles none
  WorkerCore core_;                                    // engine thread, between Start and Close
  std::thread thread_;
  bool closing_ = false;                             // engine thread
  std::vector<std::function<void()>> when_drained_;  // the same

  mutable std::mutex published_mutex_;
  WorkerMetrics published_;
};

}  // namespace baton
