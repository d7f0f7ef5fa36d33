// Turns admitted prompts into KV and a first token, many at once, chunk by chunk, and hands the KV
// over. A plain object of the engine thread: events in, effects out; no clock, thread or socket.
//
// Life of a prompt: Queued -> (OPEN sent) Opening -> Promised -> Running -> Committing -> Ended
// (admitted_prompts.h); the whole table, with deadlines, is in prompt.cc.
//
// Order: least remaining tokens first; a prompt overtaken too often goes first (prompt_queue.h).
// docs/SCHEDULING.md has the bound on overtaking, and why no two workers wait for each other.
//
// Ranks of a relay: a head computes its slice and hands all KV up to its end to the next rank; the
// tail computes the first token. One slice at a time, kept until it is done; what there is of it
// may outlive its attempt. docs/RELAY.md has the order of pages and slices, rounds, what is left,
// and the proofs.
//
// A step: Contribute, LayersDone after each run of layers until all are done, StepDone. Of the
// slice: NextBlock, Compute, BlockDone. Events come between steps and blocks.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/kv/kv_pool.h"
#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "prefill_worker/admitted_prompts.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

struct ComputedSlice {
  int tokens = 0, before = 0;  // tokens of the slice, and of the prompt before the slice
};

// Tokens of prompts that a step may take.
struct PromptShare {
  int tokens = 0;       // at most
  int scored_cost = 1;  // of these for one that is scored; the last may take more than is left
  // With so many the step takes no further prompt, so that those it has end sooner.
  int enough = std::numeric_limits<int>::max();
  // At most, while a prompt that would go first has just come: its promise is here soon.
  int while_asking = std::numeric_limits<int>::max();
};

class PrefillScheduler {
 public:
  // Pool and index outlive the scheduler. index: null: KV is not reused. max_context and
  // open_ahead are positive.
  PrefillScheduler(const PrefillOptions& options, const PrefillFacts& facts, KvPool* pool,
                   PrefixIndex* index);
  PrefillScheduler(const PrefillScheduler&) = delete;
  PrefillScheduler& operator=(const PrefillScheduler&) = delete;

  // Takes events, and tells what the worker reports.
  AdmittedPrompts& prompts() { return prompts_; }
  const AdmittedPrompts& prompts() const { return prompts_; }

  // --- one step
  // Adds pieces within the share; returns the number of tokens. Also chooses the slice, and sends
  // due OPENs. kept_pages: free pages that are reserved for others.
  int Contribute(const PromptShare& share, int kept_pages, absl::Time now, StepBuilder* builder);
  // Bytes per layer that this step makes final for handoffs; 0: no peer waits for single layers.
  int64_t AnnouncedBytesPerLayer() const;
  // Announces the finished pages of the step's layers [0, to).
  void LayersDone(int to);
  void StepDone(Backend* backend, Sampler* sampler, absl::Time now);

  // --- the slice, between steps
  bool has_slice() const { return SlicePrompt() != nullptr; }
  // The slice's next block, of at most max_rows rows; empty: no slice, or it waits for its inflow.
  std::optional<SliceBlock> NextBlock(int max_rows) const;
  // Runs the block on the backend; the slice begins there with its first block.
  void Compute(const SliceBlock& block, Backend* backend) const;
  // Announces the block's KV; took: to compute it. Returns the slice if this block ends it, else 0
  // tokens.
  ComputedSlice BlockDone(const SliceBlock& block, const Backend& backend, Sampler* sampler,
                          absl::Duration took, absl::Time now);

  // Effects since the last call, in order.
  std::vector<PrefillEffect> TakeEffects() { return std::exchange(effects_, {}); }

 private:
  struct Piece {
    Prompt* prompt;
    int32_t begin, end;  // positions
    int logits;          // index in the step's logits, -1 = none
    int scores;          // index of the first of its scored rows, if it has any
    int announced;       // layers
  };

  // The prompt whose slice runs on the engine; null: none does.
  Prompt* SlicePrompt() const;
  bool IsOnEngine(const PromptSlice& slice) const;
  bool ShorterHasCome(const std::vector<Prompt*>& in_order);
  bool RunsInSteps(Prompt* prompt) const;
  void Run(Prompt* prompt, absl::Time now);
  // *running: the prompt whose slice runs, before and after.
  void ChooseSlice(Prompt* prompt, absl::Time now, const Prompt** running);
  int AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder);
  // KV of the slice at hand is there up to `end`.
  void Computed(Prompt* prompt, int32_t end);
  void Score(const Piece& piece, Backend* backend, Sampler* sampler);
  void DrawFirstToken(Prompt* prompt, std::span<const float> logits, Sampler* sampler,
                      absl::Time now);

  const PrefillOptions options_;
  const PrefillFacts facts_;
  const KvLayout& layout_;
  std::vector<PrefillEffect> effects_;
  AdmittedPrompts prompts_;
  std::vector<Piece> pieces_;  // the running step's
  int64_t seen_ = -1;          // serial of the newest prompt that has seen a step composed
  int64_t engine_run_ = 0;  // the run that the engine holds (PromptSlice::run_id), running or not
};

}  // namespace baton
