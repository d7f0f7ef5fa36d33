// Weights of the plain fp32 mode by our names (model_tensors.h), and its linear layers. Engine
// thread; work is spread over the pool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/cpu/fp32/fp32_matrix.h"
#include "engine/threads/compute_pool.h"

namespace baton {

class Fp32Weights {
 public:
  // Reads them all; the pool outlives this.
  Fp32Weights(const WeightSource& source, ComputePool& pool);

  // CHECKs that there is one of this name.
  const std::vector<float>& At(const std::string& name) const;
  int64_t bytes() const;
  // y = x times the matrix of this name, plus the bias that goes with it if there is one. y may not
  // be x.
  void Linear(const Matrix& x, const std::string& name, Matrix& y) const;

 private:
  ComputePool& pool_;
  absl::flat_hash_map<std::string, std::vector<float>> tensors_;
};

}  // namespace baton
