// Finds the tensors of a checkpoint that together are one quantised matrix, and checks their types,
// shapes and group index, so that every value computed from them lies inside the files.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "engine/checkpoint/finite_check.h"
#include "engine/checkpoint/quantized_tensor.h"
#include "engine/checkpoint/safetensors.h"

namespace baton {

// The bytes of one tensor of a file, and what its values have to be.
struct TensorPart {
  std::string name;
  std::span<const std::byte> bytes;
  int64_t cols = 1;       // values of a row
  FiniteRule rule{0, 0};  // 0 bytes: integers, always good
};

// Rule of floats of `dtype`; in scales a value is bad also where its product with a code would not
// be finite.
FiniteRule FiniteRuleOf(Dtype dtype);
FiniteRule ScaleRuleOf(Dtype dtype);

// BF16, F16, F32: the dtype; anything else: false.
bool IsFloatDtype(const TensorView& view, Dtype* dtype);

struct QuantizedParts {
  QuantizedTensor tensor;
  std::vector<TensorPart> parts;  // codes first
};

// The matrix "<module>.weight" of [rows, cols]. Errors name folder, tensor and what is wanted.
absl::StatusOr<QuantizedParts> FindQuantizedParts(const Checkpoint& checkpoint,
                                                  const QuantScheme& scheme,
                                                  const std::string& module, int64_t rows,
                                                  int64_t cols);

}  // namespace baton
