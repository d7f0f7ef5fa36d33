// `baton bench step`: speed of whole forward passes of a model on this machine, without server or
// wire, beside the limits measured right before and after each sample (probed_sample.h): prefill of
// one prompt in chunks against the multiply-add peak of the path, probed between its steps; decode
// steps of a batch against what the weights and the KV take to read, or the peak where that is
// lower; the memory of an engine beside weights and KV pool; and where weights are cached, how long
// another worker takes to load them. Every part of a model is held to the peak of its own type.
#pragma once

#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"
#include "engine/step/backend.h"

namespace baton {

struct StepBenchOptions {
  EngineOptions engine;  // model, threads, isa, dtype, cache_dir, ...; max_step_tokens is set here
  std::vector<int> prompts = {512, 2048};
  std::vector<int> chunks = {512};  // tokens of a step; several are measured in turns
  bool slices = false;              // each prompt also as one slice, in parts of every such chunk
  std::vector<int> decode = {1, 8, 32};  // batch sizes
  int context = 128;                     // tokens before the decode steps of each sequence
  int samples = 21;                      // decode steps measured
  int rounds = 1;                        // prefill: min samples of each way, taken in turns,
  double seconds = 2;                    // and more until so much time has passed for each
  bool phases = false;  // adds steps with sampling and prints their phases (step_phases.h)
  bool json = false;
};

// Digests depend on the model and the options alone, never on the machine.
absl::StatusOr<std::vector<KernelResult>> MeasureSteps(const StepBenchOptions& options);
// Prints the table (and with json one object as the last line). An error also when an engine takes
// more than 300 MB beside weights and KV.
absl::Status RunStepBench(const StepBenchOptions& options);

}  // namespace baton
