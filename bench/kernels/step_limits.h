// The limits of `bench step` as this machine has them at a moment: the peak of every instruction
// that a step multiplies with, and the bandwidth.
#pragma once

#include <optional>
#include <string>

#include "bench/kernels/step_work.h"
#include "engine/cpu/linear/linear_job.h"
#include "engine/cpu/machine/isa.h"
#include "engine/cpu/machine/machine_probe.h"
#include "engine/threads/compute_pool.h"

namespace baton {

// The types of a model's weights. Routers of experts, the matrices between latents and heads, and
// attention are always bf16.
struct WeightTypes {
  WeightType layers = WeightType::kBf16, lm_head = WeightType::kBf16;
  // Returns the types that EngineOptions::dtype gives; the LM head of an int4 model is int8.
  static WeightTypes Of(const std::string& dtype);
};

// The machine's limits at one moment, by probes. 0: unknown, no limit.
struct MachineState {
  double gbps = 0;
  double layers = 0, lm_head = 0, bf16 = 0;  // 10^9 operations per second, by their types

  // Returns the min time of a step's products, each part by its own instruction.
  double MinSeconds(const StepFlops& flops) const;
  // Returns the min time of a step that also reads `bytes`: the longer of the two times.
  double MinSeconds(const StepFlops& flops, double bytes) const;
};

class StepProbe {
 public:
  // isa: empty: peaks are unknown. probe_bytes: memory to read. pool: the backend's own, idle
  // between steps, so that a probe runs on the threads and cores of the steps beside it.
  StepProbe(std::optional<Isa> isa, const WeightTypes& types, int64_t probe_bytes,
            ComputePool& pool);
  // Probes the peaks, some milliseconds each; reading takes some tens of milliseconds more.
  MachineState Peaks();
  MachineState PeaksAndBandwidth();
  int64_t bytes() const { return memory_.bytes(); }

 private:
  std::optional<Isa> isa_;
  WeightTypes types_;
  ComputePool& pool_;
  MemoryProbe memory_;
};

}  // namespace baton
