// `baton bench step`: speed of whole forward passes of a model on this machine, without server or
// wire, with the limits measured right before and after each sample (probed_sample.h). Prefill: one
// prompt in chunks against the multiply-add peak of the path, probed between its steps. Decode:
// steps of a batch against the time to read weights and KV, or the peak where that is lower.
// Memory: an engine's, without weights and KV pool. Where weights are cached, the load time of
// another worker. The limit of every part of a model is the peak of its own type.
#pragma once

#include <vector>

#include "bench/kernel_result.h"
#include "common/status.h"
#include "engine/step/backend.h"
#include "engine/step/engine_lab.h"

namespace baton {

struct StepBenchOptions {
  EngineOptions engine;  // model, threads, isa, dtype, cache_dir, ...; max_step_tokens is set here
  EngineLab lab;
  std::vector<int> prompts = {512, 2048};
  std::vector<int> chunks = {512};  // tokens of a step; several are measured in turns
  bool slices = false;              // each prompt also as one slice, in parts of every such chunk
  std::vector<int> decode = {1, 8, 32};  // batch sizes
  int context = 128;                     // tokens before the decode steps of each sequence
  int samples = 21;                      // decode steps measured
  int rounds = 1;                        // prefill: min samples of each way; the ways take turns
  double seconds = 2;                    // prefill: each way is sampled for at least so long
  bool phases = false;  // adds steps with sampling and prints their phases (step_phases.h)
  bool json = false;
};

// Digests depend on the model and the options alone, never on the machine.
absl::StatusOr<std::vector<KernelResult>> MeasureSteps(const StepBenchOptions& options);
// Prints the table (and with json one object as the last line). Errors: those of MeasureSteps, and
// an engine that takes more than 300 MB without weights and KV.
absl::Status RunStepBench(const StepBenchOptions& options);

}  // namespace baton
