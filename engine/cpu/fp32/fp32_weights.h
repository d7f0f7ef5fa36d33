// Weights of the plain fp32 mode by engine names (model_tensors.h), and the linear layers. Engine
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
  // Reads all weights; the pool outlives this object.
  Fp32Weights(const WeightSource& source, ComputePool& pool);

  // CHECKs that the name exists.
  const std::vector<float>& At(const std::string& name) const;
  int64_t bytes() const;
  // y = x times the matrix `name`, plus the bias of that matrix if there is one. y may not be x.
  void Linear(const Matrix& x, const std::string& name, Matrix& y) const;

 private:
  ComputePool& pool_;
  absl::flat_hash_map<std::string, std::vector<float>> tensors_;
};

}  // namespace baton
