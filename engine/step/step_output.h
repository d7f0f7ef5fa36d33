// Parameters of sampling, for a backend, and its results. Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/sampling/sequence_sampling.h"

namespace baton {

// How the token that follows a row is chosen. A backend that samples later may keep a share of
// `sampling` if it looks back to its tokens (SequenceSampling::LooksBack): then it does not change
// before its token is known. Of any other it reads in the call what it needs.
struct RowSampling {
  std::shared_ptr<const SequenceSampling> sampling;  // null: nobody reads the row's token
  int64_t position = 0;                              // absolute position of the new token
  bool wants_digest = false;                         // of the row's logits
};

// Scored rows of a step, [first, first + tokens.size()): each row's known next token, whose
// log-probability is asked for. top: most probable tokens to tell, of the ids [0, end).
struct ScoredRows {
  int first = 0;
  std::span<const int32_t> tokens{};  // at most Backend::kScoredAtOnce
  int top = 0;
  size_t end = 0;
};

struct StepOutput {
  std::vector<SampledToken> sampled;  // one per logit row of the step, or the slice's one
  double seconds = 0;                 // that the step took; 0: the clock of the caller tells
};

}  // namespace baton
