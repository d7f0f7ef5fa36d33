#include "bench/kernels/step_limits.h"

#include <algorithm>

namespace baton {

WeightTypes WeightTypes::Of(const std::string& dtype) {
  if (dtype == "int8") return {WeightType::kInt8, WeightType::kInt8};
  if (dtype == "int4") return {WeightType::kInt4, WeightType::kInt8};
  return {};
}

double MachineState::MinSeconds(const StepFlops& flops) const {
  if (bf16 == 0) return 0;
  return (flops.layers / layers + flops.lm_head / lm_head +
          (flops.always_bf16 + flops.attention) / bf16) /
         1e9;
}

double MachineState::MinSeconds(const StepFlops& flops, double bytes) const {
  return std::max(MinSeconds(flops), gbps > 0 ? bytes / gbps / 1e9 : 0);
}

StepProbe::StepProbe(std::optional<Isa> isa, const WeightTypes& types, int64_t probe_bytes,
                     ComputePool& pool)
    : isa_(isa), types_(types), pool_(pool), memory_(probe_bytes) {}

MachineState StepProbe::Peaks() {
  MachineState state;
  if (!isa_) return state;
  const auto probe = [&](WeightType type) {
    return ProbePeakGops(*isa_, type, pool_, kShortPeakTries);
  };
  state.bf16 = probe(WeightType::kBf16);
  state.layers = types_.layers == WeightType::kBf16 ? state.bf16 : probe(types_.layers);
  state.lm_head = types_.lm_head == types_.layers ? state.layers : probe(types_.lm_head);
  return state;
}

MachineState StepProbe::PeaksAndBandwidth() {
  MachineState state = Peaks();
  state.gbps = memory_.ReadGbps(pool_, kShortReadTries);
  return state;
}

}  // namespace baton
