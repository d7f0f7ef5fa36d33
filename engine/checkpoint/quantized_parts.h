// Finds the tensors of a checkpoint that together are one quantised matrix, and checks their types,
// shapes and group index, so that every value computed from them lies inside the files. Pure
// functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/checkpoint/finite_check.h"
#include "engine/checkpoint/quantized_tensor.h"
#include "engine/checkpoint/safetensors.h"

namespace baton {

// The bytes of one tensor, in the checkpoint's mapping, and the rule that its values must satisfy.
struct TensorPart {
  std::string name;
  std::span<const std::byte> bytes;
  int64_t cols = 1;       // values per row
  FiniteRule rule{0, 0};  // 0 bytes: integers, always good
};

// Rules for floats of `dtype`. ScaleRuleOf also rejects a scale whose product with a code would not
// be finite.
FiniteRule FiniteRuleOf(Dtype dtype);
FiniteRule ScaleRuleOf(Dtype dtype);

// Sets *dtype and returns true if the tensor is BF16, F16 or F32.
bool IsFloatDtype(const TensorView& view, Dtype* dtype);

struct QuantizedParts {
  QuantizedTensor tensor;
  std::vector<TensorPart> parts;  // codes first
};

// Returns the matrix "<module>.weight" of [rows, cols]; the checkpoint must outlive the matrix.
// NotFound: a tensor is missing. InvalidArgument: a type, a shape or the group index is wrong.
// Errors name folder, tensor and the expected form.
absl::StatusOr<QuantizedParts> FindQuantizedParts(const Checkpoint& checkpoint,
                                                  const QuantScheme& scheme,
                                                  const std::string& module, int64_t rows,
                                                  int64_t cols);

}  // namespace baton
