// Turns admitted prompts into KV and a first token, many at once, chunk by chunk, and hands the KV
// over. A plain object of the engine thread: events in, effects out; no clock, thread or socket.
//
// Life of a prompt: Queued -> (OPEN sent) Opening -> Promised -> Running -> Committing -> Ended;
// the whole table, with deadlines, is in prompt_state.cc.
//
// Order: least remaining tokens first; a prompt overtaken too often goes first (prompt_queue.h).
// All pages are taken when a prompt starts, in the order of the workers' incarnations, and kept
// until its handoff has ended. docs/SCHEDULING.md has the bound on overtaking, and why no two
// workers wait for each other.
//
// Ranks of a relay: a head computes its slice and hands all KV up to its end to the next rank; the
// tail computes the first token. One slice at a time, kept until it is done; what there is of it
// may outlive its attempt. docs/RELAY.md has the order of pages and slices, rounds, what is kept,
// and the proofs.
//
// A step: Contribute, LayersDone after each run of layers until all are done, StepDone. Of the
// slice: NextBlock, BeginSlice if it is the first, BlockDone. Events come between steps and blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/ticket.h"
#include "common/token_grammar.h"
#include "engine/kv/kv_pool.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prompt.h"
#include "prefill_worker/prompt_pages.h"
#include "prefill_worker/prompt_queue.h"
#include "prefill_worker/slice_cache.h"
#include "proto/messages.h"

namespace baton {

// TransferCommand: to the transfer room. WorkerEvent: to the router. HandoffArrived: the finished
// KV of a prompt whose sink is this worker, for its decode batch; the pages are the batch's from
// now.
using PrefillEffect = std::variant<TransferCommand, WorkerEvent, HandoffArrived>;

struct ComputedSlice {
  int tokens = 0, before = 0;  // tokens of the slice, and of the prompt before the slice
};

class PrefillScheduler {
 public:
  // The pool must outlive the scheduler. vocab, max_context and open_ahead are positive.
  PrefillScheduler(const PrefillOptions& options, const PrefillFacts& facts, KvPool* pool);
  PrefillScheduler(const PrefillScheduler&) = delete;
  PrefillScheduler& operator=(const PrefillScheduler&) = delete;

  // --- events. Events of unknown tickets and requests are ignored.
  // A request that can never run ends at once with kFailed and the reason. Ends earlier attempts at
  // the request (this one finds their KV); one that comes after a later one is ignored.
  // grammar: compiled from sampling.grammar; null: there is none.
  void Admit(PrefillRequest request, absl::Time now, SharedGrammar grammar = nullptr);
  void Promised(const HandoffPromised& event, absl::Time now);
  void NoRoom(const HandoffNoRoom& event);
  void Ended(const HandoffEnded& event, absl::Time now);
  void Arrived(const InflowArrived& event, absl::Time now);
  void Failed(const InflowFailed& event, absl::Time now);
  void Cancel(RequestId request, Epoch up_to);
  void CancelAll();
  // Ends everything at once: the transfer room is gone and reads no page any more.
  void Abandon();
  void OnTime(absl::Time now);      // ends prompts without progress for too long
  absl::Time NextDeadline() const;  // the latest time of the next OnTime

  // --- one step
  // Adds pieces of at most `budget` tokens in all; returns the number of tokens. Also chooses the
  // slice, and sends due OPENs. kept_pages: free pages that are reserved for others. scored_cost:
  // tokens of the budget that a scored one takes; the last may take more than is left.
  int Contribute(int budget, int kept_pages, absl::Time now, StepBuilder* builder,
                 int scored_cost = 1);
  // Bytes per layer that this step makes final for handoffs; 0: no peer waits for single layers.
  int64_t AnnouncedBytesPerLayer() const;
  // Announces the finished pages of the step's layers [0, to).
  void LayersDone(int to);
  void StepDone(Backend* backend, Sampler* sampler, absl::Time now);

  // --- the slice, between steps
  bool has_slice() const { return slice_ != nullptr; }
  // The slice's next block, of at most max_rows rows; empty: no slice, or it waits for its inflow.
  std::optional<SliceBlock> NextBlock(int max_rows) const;
  // Describes the whole slice, for Backend::BeginSlice before the first block.
  void DescribeSlice(StepBuilder* builder) const;
  // Announces the block's KV. Returns the slice if this block ends it, else 0 tokens.
  ComputedSlice BlockDone(const SliceBlock& block, const Backend& backend, Sampler* sampler,
                          absl::Time now);

  // Effects since the last call, appended in order.
  void TakeEffects(std::vector<PrefillEffect>* out);

  // --- what the worker reports and the lender must know
  int64_t queued_tokens() const;  // still to be computed
  double queued_pairs() const;    // (query, key) pairs of these tokens
  int n_prompts() const { return queue_.size(); }
  int n_left() const { return static_cast<int>(slice_cache_.left().size()); }  // by ended attempts
  int n_running() const;
  // Pages that the first prompt able to start lacks; 0: no prompt waits for pages.
  int wanted_pages() const { return pages_.wanted(); }
  // Gives back the pages of the slices that were left first, but not of `except`; false: there are
  // none.
  bool DiscardOldest(const Prompt* except = nullptr);
  // Free pages taken by the last Contribute.
  int taken_pages() const { return pages_.taken(); }

  int pages_held() const;
  int64_t reused_tokens() const { return pages_.reused_tokens(); }  // since the start

 private:
  struct Piece {
    Prompt* prompt;
    int32_t begin, end;  // positions
    int logits;          // index in the step's logits, -1 = none
    int scores;          // index of the first of its scored rows, if it has any
    int announced;       // layers
  };

  bool MissesInflow(const PromptSlice& slice) const;
  bool TakesPagesFirst(const Prompt& prompt) const;
  bool HoldPages(Prompt* prompt);
  bool TakePages(Prompt* prompt, absl::Time now);
  bool TakePagesInTurn(Prompt* prompt, bool may_start, absl::Time now);
  void EndEarlier(const Prompt& next);
  void Discard(std::unique_ptr<Prompt> left);
  void DiscardLeft(const std::function<bool(const Prompt&)>& which);
  bool RunsInSteps(Prompt* prompt);
  static bool InflowMoves(const PromptSlice& slice);
  void Run(Prompt* prompt, absl::Time now);
  void ChooseSlice(Prompt* prompt, absl::Time now);
  int AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder);
  void SendOpens(absl::Time now);
  void Open(SliceOutput* output);
  void Announce(const Prompt& prompt, int plane, int n_planes, int first_page, int end_page);
  void AnnounceTo(const Prompt& prompt, const PromptSlice& slice, int plane, int n_planes,
                  int first_page, int end_page);
  // Positions [begin, end) of the planes are final.
  void AnnounceTokens(const Prompt& prompt, int plane, int n_planes, int begin, int end);
  void PassOn(const Prompt& prompt, const InflowProgress& before);
  void AnnounceProjected(const Prompt& prompt);
  void SliceDone(const Backend& backend, Sampler* sampler, absl::Time now);
  void SliceComputed(Prompt* prompt);
  void CommitFinal(Prompt* prompt);
  void FirstToken(Prompt* prompt, std::span<const float> logits, Sampler* sampler, absl::Time now);
  void Commit(const PromptSlice& slice, SliceOutput* output, int32_t first_token);
  void GiveUp(Prompt* prompt);
  absl::Time Deadline(const Prompt& prompt) const;
  void Stop(Prompt* prompt, EndReason reason, std::string message);
  // Ends the attempt since a handoff broke; a later one may continue its slices.
  void Break(Prompt* prompt, const char* what, const TicketId& handoff, const absl::Status& status);
  void End(Prompt* prompt, EndReason reason, std::string message);
  void EndIfReleased(Prompt* prompt);
  void EndIfHandedOver(Prompt* prompt);
  void Emit(TransferCommand command) { effects_.emplace_back(std::move(command)); }
  void Emit(WorkerEvent event) { effects_.emplace_back(std::move(event)); }

  const PrefillOptions options_;
  const PrefillFacts facts_;
  PromptPages pages_;
  PromptQueue queue_;
  SliceCache slice_cache_;
  int64_t next_serial_ = 0;
  std::vector<Piece> pieces_;  // the running step's
  Prompt* slice_ = nullptr;    // the prompt whose slice runs
  int64_t engine_run_ = 0;  // the run that the engine holds (PromptSlice::run_id), running or not
  std::vector<PrefillEffect> effects_;
};

}  // namespace baton
