// `baton bench step`: speed of whole forward passes of a model on this machine, without server or
// wire: prefill of one prompt in chunks, and decode steps of a batch, beside the limits measured in
// the same run (multiply-adds for prefill, memory bandwidth for decode).
#pragma once

#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"
#include "engine/backend.h"

namespace baton {

struct StepBenchOptions {
  EngineOptions engine;  // model, threads, isa, max_step_tokens (= chunk), cache_dir, ...
  std::vector<int> prompts = {512, 2048};
  std::vector<int> decode = {1, 8, 32};  // batch sizes
  int context = 512;                     // tokens before the decode steps of each sequence
  double seconds = 2;                    // per measurement; the fastest run (prefill), the median
                                         // step (decode) counts
  bool json = false;
};

// Digests depend on the model and the options alone, never on the machine.
absl::StatusOr<std::vector<KernelResult>> MeasureSteps(const StepBenchOptions& options);
// Prints the table (and with json one object as the last line).
absl::Status RunStepBench(const StepBenchOptions& options);

}  // namespace baton
