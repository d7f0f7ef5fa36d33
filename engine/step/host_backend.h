// The sampling half of a step for backends that compute on return and have their logits on the
// host: chooses tokens by the Sampler, on the threads of the backend. Engine thread.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"

namespace baton {

class HostBackend : public Backend {
 public:
  void Sample(std::span<const RowSampling> rows, StepOutput* out) override;
  void Score(const ScoredRows& rows, std::span<PromptLogprob> out) override;
  void SampleSlice(const RowSampling& row, StepOutput* out) override;

 private:
  Sampler& sampler();  // made when it is first used, since it needs compute_pool()

  std::optional<Sampler> sampler_;
  std::vector<SampleRow> rows_;  // scratch
  std::vector<SampledToken> sampled_;
};

}  // namespace baton
