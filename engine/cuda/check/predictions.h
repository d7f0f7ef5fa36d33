// Digests of small matrix products, predicted by engine/numerics/tensor_core_dot.h before any GPU
// has computed them, and the file that keeps them (tests/data/golden/cuda-sm90-gemm.txt). Any
// thread.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "engine/cuda/check/inputs.h"

namespace baton {

// A product of A (m, k), matrix 1, and B (n, k)^T, matrix 2, and what is expected of it.
struct Prediction {
  Distribution distribution = Distribution::kNormal;
  uint32_t seed = 0;
  int m = 0;
  int n = 0;
  int k = 0;
  uint64_t digest = 0;  // DigestOf the rows of C

  bool operator==(const Prediction&) const = default;
};

// Returns FNV-1a, 64 bits, over fp32 values as little-endian bytes.
uint64_t DigestOf(std::span<const uint32_t> bits);

// Returns C, row after row, as bits of fp32.
std::vector<uint32_t> PredictedProduct(const Prediction& shape);

// Returns the shapes of the file with their digests computed anew; about 0.2 s.
std::vector<Prediction> AllPredictions();

std::string LineOf(const Prediction& prediction);
// Reads the lines of a file, without comments; empty: a line is damaged.
std::vector<Prediction> ReadPredictions(std::istream& file);

}  // namespace baton
