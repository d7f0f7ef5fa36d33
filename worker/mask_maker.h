// Makes the masks of sequences with a grammar while the step runs that computes their logits.
#pragma once

#include <span>

#include "engine/sampling/sequence_sampling.h"

namespace baton {

// Engine thread. Between Start and Wait nobody else may touch the sequences.
class MaskMaker {
 public:
  virtual ~MaskMaker() = default;
  // Begins SequenceSampling::MakeMask of each.
  virtual void Start(std::span<SequenceSampling* const> sequences) = 0;
  // Returns when all that was started is done.
  virtual void Wait() = 0;
};

}  // namespace baton
