// The steps of a worker's engine, and the blocks of slices beside them: composes and submits them,
// as many at a time as the engine's depth, and completes them when their fences are reached; with
// an engine that computes on return, before Run returns. A plain object of the engine thread.
//
// A step begins when the one before is sampled. It is sampled when the tokens are known that its
// rows look back to (SequenceSampling::LooksBack), with masks made of these; until then only its
// layers run.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "decode_worker/decode_batch.h"
#include "decode_worker/page_lender.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "prefill_worker/prefill_scheduler.h"
#include "worker/prefill_meter.h"
#include "worker/step_meter.h"
#include "worker/worker_metrics.h"

namespace baton {

struct WorkerCoreOptions;
struct WorkerFacts;
struct WorkerPorts;

class EngineSteps {
 public:
  struct Parts {
    Backend* backend;
    PrefillScheduler* prefill;
    DecodeBatch* decode;
    const PageLender* lender;
    WorkerMetrics* metrics;
    std::function<void()> take_effects;  // of both schedulers; what is submitted is before them
    std::function<void()> send_report;   // what was told so far
  };
  // Options and ports outlive it.
  EngineSteps(const WorkerCoreOptions& options, const WorkerFacts& facts, const WorkerPorts& ports,
              Parts parts);

  struct Step {
    int n_rows = 0, n_prefill = 0;
    double keys = 0;   // that the rows read
    double pairs = 0;  // of queries and keys of the prompts' pieces
    int budget = 0;    // prompt tokens that it may have, those of a slice's block among them
    bool is_scored = false;
    int n_tokens() const { return n_rows + n_prefill; }
  };
  // Without tokens: no step, and nothing begins. CHECKs that there is room.
  Step Compose(absl::Time now, int pool_pages);
  // Submits the composed step.
  void Run(const Step& step);
  // Submits a block of the slice beside the step; false: there is no slice, or it waits.
  bool RunSliceBlock(const Step& step);
  void Complete();  // what is reached by now

  // False: nothing may be submitted before something completes.
  bool has_room() const;
  bool has_under_way() const { return !steps_.empty() || !blocks_.empty(); }
  Fence next() const;               // of the first of it; has_under_way
  absl::Duration expected() const;  // how long all of it should take

  const PrefillMeter& prefill_meter() const { return prefill_meter_; }
  const StepMeter& step_meter() const { return step_meter_; }
  double plain_seconds() const { return plain_seconds_; }

 private:
  // Under way. Its memory stays where it is until its fence is reached.
  struct Submitted {
    Step step;
    bool is_sampled = false, rows_are_done = false;
    absl::Time start, layers_end = absl::InfiniteFuture();  // infinite: nobody saw it
    Fence done{};                                           // once sampled
    StepOutput out{};
    absl::Duration expected{};
  };
  struct Block {
    SubmittedBlock block{};
    bool is_first = false;
    absl::Time start, end = absl::InfiniteFuture();  // infinite: nobody saw it
    Fence done{};
    StepOutput out{};
    absl::Duration expected{};
  };

  absl::Duration Expect(double seconds) const;  // tells what begins
  bool HasResults(Fence fence) const;           // it is reached, and the engine not lost
  int PromptTokens(int n_rows, double keys) const;
  int LayersAtOnce() const;
  void FinishMasks();
  void SampleNewest();
  void CompleteRows(Submitted* submitted);
  void CompleteStep();
  void CompleteBlock();
  // layers: the part of the duration that was no sampling and scoring.
  void Measure(const Step& step, absl::Duration layers, absl::Duration duration);

  const WorkerCoreOptions& options_;
  const WorkerPorts& ports_;
  const Parts parts_;
  const StepLimits limits_;  // of the engine
  const int max_context_;    // tokens
  Backend* const backend_;
  PrefillScheduler& prefill_;
  DecodeBatch& decode_;
  WorkerMetrics& metrics_;
  StepBuilder builder_;
  std::vector<RowSampling> sampling_;                      // scratch of SampleNewest
  std::deque<Submitted> steps_;                            // the oldest first
  std::deque<Block> blocks_;                               // the same
  absl::Time busy_until_ = absl::InfinitePast();           // the end of what completed last
  absl::Duration slice_ran_;                               // computing time of the running slice
  absl::Time slice_waits_since_ = absl::InfiniteFuture();  // the slice waits for its inflow
  PrefillMeter prefill_meter_;
  StepMeter step_meter_;
  double plain_seconds_ = 0;  // predicted for the last step with rows, without its prompt tokens
};

}  // namespace baton
