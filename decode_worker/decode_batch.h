// Turns arrived KV into the remaining tokens, all requests in one ever-changing batch. A plain
// object of the engine thread: events in, effects out; no clock, thread or socket.
//
// A sequence is a request of this batch: expected (the router named it), arrived (its KV is here
// and verified), or both, in either order. A sequence that is both waits for a row, joins at the
// next step and leaves in the very step that ends it.
//
// Pages: a sequence comes with the pages of its prompt and a little room to grow; a row takes
// further pages as it needs them, and gives back those that fell out of the model's window. When
// the pool has none, the youngest sequence that is not covered to its end is preempted: its pages
// go back and the router dispatches the request again (prompt and tokens so far are computed
// again). No row waits for pages while holding some, so there is no deadlock; the oldest row is
// preempted last, so rows that are not covered do not preempt each other in turn for ever; and the
// router asks for cover to the end for a request that was preempted kMaxPreemptions times, so each
// ends. A row waits only while free pages of the transfer room are on their way back.
//
// sequence_state.cc has the table of states, with deadlines.
//
// A step: Contribute, StepDone. Events come between steps, never inside one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/token_grammar.h"
#include "decode_worker/decode_options.h"
#include "decode_worker/sequence_state.h"
#include "engine/kv/kv_pool.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "proto/messages.h"

namespace baton {

// TransferCommand: to the transfer room. WorkerEvent: to the router.
using DecodeEffect = std::variant<TransferCommand, WorkerEvent>;

class DecodeBatch {
 public:
  // CHECKs that vocab and max_batch are above 0. The pool must outlive the batch. Pages of
  // sequences are not given back at destruction: CancelAll first.
  DecodeBatch(const DecodeOptions& options, const DecodeFacts& facts, KvPool* pool);
  ~DecodeBatch();
  DecodeBatch(const DecodeBatch&) = delete;
  DecodeBatch& operator=(const DecodeBatch&) = delete;

  // --- events
  // Ends earlier attempts at the request; one that comes after a later one is ignored. A request
  // that cannot be met ends as kFailed: no prompt, no token to make, max_sequences reached.
  // grammar: compiled from sampling.grammar; null: there is none.
  void Expect(DecodeRequest request, absl::Time now, SharedGrammar grammar = nullptr);
  // Takes KV that is here, by handoff or from this worker's own prefill; the pages are the batch's
  // from now on.
  void Arrived(HandoffArrived arrived, absl::Time now);
  void Aborted(const HandoffAborted& event);  // ends the sequence, unless its KV has come
  // Ends the attempts 1..up_to. KV of them that comes later is given back.
  void Cancel(RequestId request, Epoch up_to);
  void CancelAll();
  void OnTime(absl::Time now);  // ends the sequences whose deadline has passed
  // The latest time of the next OnTime; infinite: no sequence.
  absl::Time NextDeadline() const;

  // --- one step
  // Adds one row per running sequence that has a page for its token, at most max_batch; returns the
  // number of rows. reclaimable: number of free pages of the transfer room, which come back when
  // wanted. If the result is not 0, the step is run and StepDone follows, before any other event.
  int Contribute(absl::Time now, int reclaimable, StepBuilder* builder);
  // The rows of the step that need a mask before StepDone (SequenceSampling::MakeMask).
  std::span<SequenceSampling* const> unmasked() const { return unmasked_; }
  // Samples a token for each row from the step's logits, and ends the sequences that are complete.
  void StepDone(const Backend& backend, Sampler* sampler, absl::Time now);

  // Effects since the last call, appended in order.
  void TakeEffects(std::vector<DecodeEffect>* out);

  // --- what the worker reports and the lender must know
  int n_rows() const { return static_cast<int>(rows_.size()); }
  bool has_rows() const { return !rows_.empty() || !ready_.empty(); }  // now or at the next step
  int n_waiting() const;  // named by the router and without a row
  int n_sequences() const { return static_cast<int>(sequences_.size()); }  // with KV or request
  int expected_pages() const;  // pages of sequences whose KV is not here yet
  int pages_held() const;
  // Pages that the rows will take within the next steps, to be kept free for them.
  int growth_pages() const;
  int steps_to_first_end() const;  // steps until the first row ends; 0: no row

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Sequence;

  Sequence* Find(const Key& key);
  Sequence* FindOrMake(const Key& key);
  void Complete(Sequence* sequence, absl::Time now);
  absl::Time DeadlineOf(const Sequence& sequence) const;
  std::string WhyRefused(const Sequence& sequence) const;
  void End(Sequence* sequence, EndReason reason, std::string message, absl::Time now,
           PartFault fault = PartFault::kOwn);
  void Remember(RequestId request, Epoch up_to);
  bool WasCancelled(RequestId request, Epoch epoch) const;
  bool IsCovered(const Sequence& sequence) const;
  void Trim(Sequence* sequence);
  int RoomLeft(const Sequence& sequence) const;
  void Grow(absl::Time now, int reclaimable);
  Sequence* YoungestToPreempt() const;

  const DecodeOptions options_;
  const DecodeFacts facts_;
  KvPool* const pool_;
  // Ordered, so that work for all sequences is done in the same order in every run.
  absl::btree_map<Key, std::unique_ptr<Sequence>> sequences_;
  std::deque<Sequence*> ready_;  // complete, in order, waiting for a row
  std::vector<Sequence*> rows_;  // in order of joining
  std::vector<int> logits_;      // (rows) index of the logits in the running step; -1: no room
  std::vector<SequenceSampling*> unmasked_;  // of the running step
  std::vector<SampleRow> sample_rows_;       // scratch of StepDone
  std::vector<SampledToken> sampled_;
  // Remembered cancels: KV that arrives after them is given back at once.
  absl::flat_hash_map<RequestId, Epoch> cancelled_;
  std::deque<RequestId> cancelled_order_;
  std::vector<DecodeEffect> effects_;
};

}  // namespace baton
