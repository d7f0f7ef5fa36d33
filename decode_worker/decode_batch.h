// Turns arrived KV into the remaining tokens, all requests in one ever-changing batch. A plain
// object of the engine thread: events in, effects out; no clock, thread or socket.
//
// A sequence is a request of this batch: expected (the router named it), arrived (its KV is here
// and verified), or both, in either order. A sequence that is both waits for a row, joins at the
// next step and leaves in the very step that ends it.
//
// Pages: a sequence comes with the pages of its prompt and a little room to grow; a row takes
// further pages as it needs them, and gives back those that fell out of the model's window. Full
// pages enter the prefix index, generated tokens included, and stay there when the row ends. When
// the pool has none, the youngest sequence that is not covered to its end is preempted: its pages
// go back and the router dispatches the request again (prompt and tokens so far are computed
// again). Rows never wait for another row's pages while they hold some, so there is no deadlock;
// the oldest row is preempted last, so rows that are not covered do not preempt each other in turn
// for ever; and the router asks for cover to the end for a request that was preempted
// kMaxPreemptions times, so each ends. A row waits only while free pages of the transfer room are
// on their way back.
//
// A step: Contribute, AddSampling, StepDone. Several steps may be under way, each begun when the
// one before is sampled; events come at any time between these calls. Contribute knows positions,
// pages and ends by length; StepDone brings tokens, ends by stop tokens, and times. A row whose
// newest token is not known yet is fed it. The row of a sequence that has ended meanwhile is
// dropped. What is refused is an absl::Status inside, and a PartEnded (kFailed) for the router.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/router_id.h"
#include "common/status.h"
#include "common/token_grammar.h"
#include "decode_worker/cancelled_attempts.h"
#include "decode_worker/decode_options.h"
#include "decode_worker/sequence.h"
#include "engine/kv/kv_pool.h"
#include "engine/kv/prefix_index.h"
#include "engine/model/model_desc.h"
#include "engine/sampling/sampler.h"
#include "engine/step/step.h"
#include "engine/step/step_output.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "proto/messages.h"

namespace baton {

// TransferCommand: to the transfer room. WorkerEvent: to the router.
using DecodeEffect = std::variant<TransferCommand, WorkerEvent>;

class DecodeBatch {
 public:
  // CHECKs that max_batch is above 0. Model, pool and index (null: no KV is kept for later prompts)
  // outlive the batch. Pages of sequences are not given back at destruction: CancelAll first.
  DecodeBatch(const DecodeOptions& options, const ModelDesc& model, KvPool* pool,
              PrefixIndex* index);

  // --- events
  // Ends earlier attempts at the request; one that comes after a later one is ignored. A request
  // that cannot be met ends as kFailed: CheckRequest, max_sequences. grammar: compiled from
  // sampling.grammar; null: there is none.
  void Expect(DecodeRequest request, absl::Time now, SharedGrammar grammar = nullptr);
  // Takes KV that is here, by handoff or from this worker's own prefill; the pages are the batch's
  // from now on.
  void On(HandoffArrived& event, absl::Time now);
  // Ends the sequence, unless its KV has come.
  void On(const HandoffAborted& event, absl::Time now);
  // The worker does not take the request, and says so itself: KV of it, here or on the way, is
  // given back.
  void Refuse(const DecodeRequest& request);
  // Ends the attempts 1..up_to. KV of them that comes later is given back.
  void Cancel(RequestId request, Epoch up_to);
  // Cancels the requests of one router; without it all. Returns how many it ended.
  int CancelAll(std::optional<RouterId> router = std::nullopt);
  void OnTime(absl::Time now);  // ends the sequences whose deadline has passed
  // The latest time of the next OnTime; infinite: no sequence.
  absl::Time NextDeadline() const;

  // --- one step
  // Adds one row per running sequence that has a page for its token, at most max_batch; returns the
  // number of rows. reclaimable: number of free pages of the transfer room, which come back when
  // wanted. If the result is not 0, the step is run; it is the newest step, and the builder's is
  // the step before when Contribute is called again.
  int Contribute(absl::Time now, int reclaimable, StepBuilder* builder);
  // True if every row of the newest step whose choice looks back knows the token before.
  bool CanSample() const;
  // The newest step's rows that need a mask before they are sampled (SequenceSampling::MakeMask).
  std::vector<SequenceSampling*> unmasked() const;
  // Appends how to sample each of the newest step's rows.
  void AddSampling(std::vector<RowSampling>* rows) const;
  // Takes the tokens of the oldest step's logit rows, and ends the sequences that are complete.
  void StepDone(std::span<SampledToken> sampled, absl::Time now);

  // Effects since the last call, in order.
  std::vector<DecodeEffect> TakeEffects() { return std::exchange(effects_, {}); }

  // --- what the worker reports and the lender must know
  int n_rows() const { return static_cast<int>(rows_.size()); }
  int n_waiting() const;  // named by the router and without a row
  int n_sequences() const { return static_cast<int>(sequences_.size()); }  // with KV or request
  int expected_pages() const;  // pages of sequences whose KV is to come from other workers
  int pages_held() const;
  // Pages that the rows will take within the next steps, to be kept free for them.
  int growth_pages() const;
  int steps_to_first_end() const;  // steps until the first row ends; 0: no row

 private:
  struct StepRow {
    Sequence* sequence;  // null: it has ended since
    int logits;          // index in the step's logits
  };

  Sequence* FindOrMake(const Sequence::Key& key);
  void LendHeld(const Sequence& sequence);
  void Complete(Sequence* sequence, absl::Time now);
  void End(Sequence* sequence, EndReason reason, const absl::Status& why = absl::OkStatus(),
           PartFault fault = PartFault::kOwn);
  void Remove(Sequence* sequence);
  void Grow(int reclaimable);
  Sequence* YoungestToPreempt() const;

  const DecodeOptions options_;
  const ModelDesc& model_;
  KvPool* const pool_;
  PrefixIndex* const index_;
  // Ordered, so that work for all sequences is done in the same order in every run.
  absl::btree_map<Sequence::Key, std::unique_ptr<Sequence>> sequences_;
  std::deque<Sequence*> ready_;  // complete, in order, waiting for a row
  std::vector<Sequence*> rows_;  // in order of joining
  // Under way, the oldest first; each in the order of rows_.
  std::deque<std::vector<StepRow>> steps_;
  // Remembered cancels: KV that arrives after them is given back at once.
  CancelledAttempts cancelled_;
  std::vector<DecodeEffect> effects_;
};

}  // namespace baton
