// Both phases of one worker around one engine: composes the prefill scheduler, the decode batch and
// the lender into steps, and speaks for them to the routers and the transfer room. Everything of
// the engine thread except the thread: the simulation runs the same object.
//
// A turn: rows of the decode batch first, then prefill pieces within what is left of the step's
// budget; beside decode rows the prefill part is bounded so that running streams are not stalled.
// Then at most one block of a relay's slice, some rows in one layer: so rows, shorter prompts
// and cancels wait no longer for a slice than for a step. With an engine of some depth (Backend) a
// turn submits the next step while the one before runs; what has completed comes first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "decode_worker/decode_batch.h"
#include "decode_worker/page_lender.h"
#include "engine/kv/kv_pool.h"
#include "engine/kv/prefix_index.h"
#include "engine/step/backend.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/prefill_scheduler.h"
#include "proto/control_client.h"
#include "proto/messages.h"
#include "worker/engine_steps.h"
#include "worker/fenced_commands.h"
#include "worker/grammar_desk.h"
#include "worker/mask_thread.h"
#include "worker/prefill_meter.h"
#include "worker/router_lines.h"
#include "worker/worker_metrics.h"

namespace baton {

struct WorkerCoreOptions {
  PrefillOptions prefill{};
  DecodeOptions decode{};
  bool reuse_kv = true;  // prompts begin with pages of earlier prompts and sequences, if still here
  // A step with decode rows takes prompt tokens, too, until it is so many times as long as without
  // them; and in any case so many, so that prompts get on.
  double itl_stretch = 1.25;
  int min_mixed_tokens = 16;
  PromptStep prompt_step{};  // max_tokens: the engine's
  // Layers run together until this much KV is final, then it is announced: small chunks do not pay
  // for one message per layer.
  int64_t announce_bytes = 256 << 10;
  // Bounds the pages lent between two steps, which are zeroed first; one page at least is lent.
  int64_t zeroed_bytes_per_turn = 4 << 20;
};

// Facts about the worker. The engine's limits bound steps and slices.
struct WorkerFacts {
  Incarnation self = 0;
  Role role = Role::kBoth;
  int max_context = 0;                      // tokens
  std::optional<PrefillCost> first_cost{};  // cost of prefill until it is measured
  ClusterKey key{};                         // of the names of its pages
};

struct WorkerPorts {
  std::function<absl::Time()> clock{};  // monotonic
  std::function<void(TransferCommand)> transfer;
  // Sends by the stream that RouterConnected named; dropped if that has ended.
  std::function<void(uint64_t stream, WorkerReport)> report;
  // Has the grammar compiled; a GrammarCompiled with the job's id follows, in the order of jobs.
  // Null: this worker has no tokenizer and refuses grammars.
  std::function<void(GrammarJob)> compile{};
  MaskThread* masks = nullptr;  // null: masks are made on the calling thread
  // Told before a step or a block of a slice begins: what it should take. Null: nobody asks.
  std::function<void(absl::Duration)> expect{};
  // Has Turn called soon; called on any thread. Null: the engine computes on return.
  std::function<void()> wake{};
  // Told before an event of the transfer room is handled, once for each. Null: nobody asks.
  std::function<void()> event_taken{};
  // Told once why the engine is lost (Backend::lost): no turn does anything any more. Null: the
  // engine cannot be lost.
  std::function<void(const std::string& why)> lost{};
};

class WorkerCore {
 public:
  // Backend and pool outlive the core. max_batch is at least 1 and below the engine's
  // max_step_tokens; itl_stretch is at least 1, min_mixed_tokens, self and max_context are
  // positive.
  WorkerCore(const WorkerCoreOptions& options, const WorkerFacts& facts, Backend* backend,
             KvPool* pool, WorkerPorts ports);

  void Handle(RouterEvent event);
  void Handle(TransferEvent event);
  void Handle(GrammarCompiled event);
  // One turn: at most one step and one block of a slice. True: there is more to do now; false:
  // sleep until an event, WorkerPorts::wake, or NextDeadline.
  bool Turn();
  absl::Time NextDeadline() const;

  void Drain();                              // finish what runs, refuse what comes
  void Close();                              // cancel everything, lend nothing more
  bool IsQuiet() const;                      // no request has a part here, and the engine is idle
  bool is_lost() const { return is_lost_; }  // the engine is
  // True if the engine may still write memory of this object.
  bool has_under_way() const { return steps_.has_under_way(); }
  // Tell of what is under way: the fence that comes next, and how long all of it should take.
  Fence next_fence() const { return has_under_way() ? steps_.next() : Fence{}; }
  absl::Duration expected() const { return steps_.expected(); }
  void Abandon();  // the transfer room is gone: CHECKs that every page came back
  WorkerMetrics metrics() const;
  const PrefixIndex* index() const { return index_ ? &*index_ : nullptr; }  // null: none

 private:
  void HandleRequest(PartRequest request);
  void RefuseKv(const PartRequest& request);
  void Begin(PartRequest request, SharedGrammar grammar);
  void CancelAllOf(RouterId router);
  void LendPages();
  bool LooksLost();  // finds out whether the engine is lost
  void AwaitNext();  // has itself woken when the next of what is under way is reached
  void TakeEffects();
  // Does what the core asks for.
  template <typename Core>
  void TakeEffectsOf(Core* core);
  void Report(WorkerEvent event);
  WorkerLoad Load() const;

  const WorkerCoreOptions options_;
  const StepLimits limits_;  // of the engine
  Backend* const backend_;
  KvPool* const pool_;
  const WorkerPorts ports_;
  std::optional<PrefixIndex> index_;  // empty: KV is not reused
  PrefillScheduler prefill_;
  DecodeBatch decode_;
  PageLender lender_;
  GrammarDesk desk_;
  RouterLines lines_;
  FencedCommands commands_;
  WorkerMetrics metrics_;  // its counters, and of its load what is no other object's
  EngineSteps steps_;
  Fence awaited_;  // the last one that AwaitNext asked for
  bool is_lost_ = false;
};

}  // namespace baton
