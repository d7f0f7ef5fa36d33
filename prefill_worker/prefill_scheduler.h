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
// A step: Contribute, LayersDone after each run of layers, StepSubmitted, AddSampling, Score, and
// StepDone when what the backend wrote is there. Of the slice: NextBlock, Compute, BlockSubmitted,
// BlockDone. Several may be under way, and events come at any time between a submission and its
// end. What is submitted is taken to be computed: what reads the KV is submitted later, or waits
// for a fence (WorkerCore). Only tokens, scores and times wait for the end, and are dropped if the
// prompt has ended meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "prefill_worker/admitted_prompts.h"
#include "prefill_worker/prefill_options.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

struct SubmittedBlock {
  int64_t prompt = 0;          // its serial
  int tokens = 0, before = 0;  // if it ends the slice: its tokens, and the prompt's before it
  std::shared_ptr<SequenceSampling> sampling{};  // of the first token; null: the slice gives none
};

// Tokens of prompts that a step may take.
struct PromptShare {
  int tokens = 0;       // at most
  int scored_cost = 1;  // of these for one that is scored; the last may take more than is left
  // With so many the step takes no further prompt, so that those it has end sooner.
  int enough = std::numeric_limits<int>::max();
  // At most, while a prompt that would go first awaits its promise, which is here soon.
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
  // All layers are submitted: the step is the newest one under way.
  void StepSubmitted(absl::Time now);
  // Appends how to sample the newest step's first tokens, and makes their masks.
  void AddSampling(std::vector<RowSampling>* rows) const;
  // Submits the newest step's scored rows.
  void Score(Backend* backend);
  // Takes the tokens of the oldest step's logit rows, and its scores.
  void StepDone(std::span<SampledToken> sampled, absl::Time now);

  // --- the slice, between steps
  bool has_slice() const { return SlicePrompt() != nullptr; }
  // The slice's next block, of at most max_rows rows; empty: no slice, or it waits for its inflow.
  std::optional<SliceBlock> NextBlock(int max_rows) const;
  // Runs the block on the backend; the slice begins there with its first block.
  void Compute(const SliceBlock& block, Backend* backend) const;
  // Announces the block's KV, and submits the sampling of the first token, if the block ends such a
  // slice.
  SubmittedBlock BlockSubmitted(const SliceBlock& block, Backend* backend, StepOutput* out,
                                absl::Time now);
  // took: to compute it.
  void BlockDone(const SubmittedBlock& block, StepOutput* out, absl::Duration took, absl::Time now);

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
  // Results of a piece under way, beside KV.
  struct Result {
    int64_t prompt;                                // its serial
    int logits;                                    // as Piece
    std::shared_ptr<SequenceSampling> sampling{};  // of the first token; null: the piece gives none
    int32_t position = 0;                          // of the first token
    bool wants_digest = false;
    ScoredRows scored{};                   // the first of them, without tokens
    std::vector<int32_t> scored_tokens{};  // of all of them
    std::vector<PromptLogprobs> scores{};
  };

  // The prompt whose slice runs on the engine; null: none does.
  Prompt* SlicePrompt() const;
  bool IsOnEngine(const PromptSlice& slice) const;
  bool ShorterAsks(const std::vector<Prompt*>& in_order);
  bool RunsInSteps(Prompt* prompt) const;
  void Run(Prompt* prompt, absl::Time now);
  // *running: the prompt whose slice runs, before and after.
  void ChooseSlice(Prompt* prompt, absl::Time now, const Prompt** running);
  int AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder);
  // KV of the slice at hand is there up to `end`.
  void Computed(Prompt* prompt, int32_t end);
  void AddScores(const Piece& piece, Result* to) const;
  std::shared_ptr<SequenceSampling> SamplingOf(const Prompt& prompt) const;
  // The prompt that awaits what it has submitted; null: it has ended, or was given up.
  Prompt* Awaiting(int64_t serial) const;
  void TakeFirstToken(Prompt* prompt, SequenceSampling* sampling, SampledToken* sampled,
                      absl::Time now);

  const PrefillOptions options_;
  const PrefillFacts facts_;
  const KvLayout& layout_;
  std::vector<PrefillEffect> effects_;
  AdmittedPrompts prompts_;
  std::vector<Piece> pieces_;              // of the step that is being submitted
  std::deque<std::vector<Result>> steps_;  // under way, the oldest first
  int64_t engine_run_ = 0;  // the run that the engine holds (PromptSlice::run_id), running or not
};

}  // namespace baton
