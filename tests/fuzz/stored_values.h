// Reads tensors of a damaged file as loading does: every value, and nothing outside.
#pragma once

#include <cmath>
#include <vector>

#include "common/check.h"
#include "engine/checkpoint/stored_tensor.h"
#include "engine/checkpoint/weight_source.h"

namespace baton {

inline constexpr int64_t kMaxValues = 1 << 16;  // that an input's tensor may have

// Whether a tensor of that shape is read: loading asks for vectors and matrices that are not empty.
inline bool IsRead(const std::vector<int64_t>& shape) {
  if (shape.empty() || shape.size() > 2) return false;
  int64_t n = 1;
  for (const int64_t size : shape)
    if (size < 1 || __builtin_mul_overflow(n, size, &n) || n > kMaxValues) return false;
  return true;
}

// A tensor with a digest has numbers alone.
inline void ReadAll(const StoredTensor& tensor, const std::vector<int64_t>& shape) {
  const int64_t rows = shape[0], cols = shape.size() == 2 ? shape[1] : 1;
  std::vector<float> wide(static_cast<size_t>(rows * cols));
  std::vector<bf16> narrow(wide.size());
  tensor.ReadFp32(0, rows, wide.data());
  tensor.ReadBf16(0, rows, narrow.data());
  const auto digest = tensor.Digest();
  BATON_CHECK(digest.ok() || absl::IsInvalidArgument(digest.status()));
  for (size_t i = 0; i < wide.size(); ++i) {
    if (digest.ok()) BATON_CHECK(std::isfinite(wide[i]) && std::isfinite(Bf16ToFloat(narrow[i])));
    if (std::isfinite(wide[i])) BATON_CHECK(narrow[i] == FloatToBf16(wide[i]));
  }
  // Rows by themselves are rows of the whole.
  std::vector<float> row(static_cast<size_t>(cols));
  tensor.ReadFp32(rows - 1, 1, row.data());
  for (size_t i = 0; i < row.size(); ++i) {
    const float expected = wide[wide.size() - row.size() + i];
    BATON_CHECK(row[i] == expected || (std::isnan(row[i]) && std::isnan(expected)));
  }
}

// Loads a model as a worker does. path: as in model_path.h.
inline void ReadModel(const std::string& path, ComputePool& pool) {
  const auto desc = ReadModelDesc(path);
  if (!desc.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(desc.status()) || absl::IsNotFound(desc.status()));
    return;
  }
  const auto source = OpenWeightSource(path, *desc, 0);
  if (!source.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(source.status()) || absl::IsNotFound(source.status()));
    return;
  }
  const auto fingerprint = (*source)->Fingerprint(pool);
  BATON_CHECK(fingerprint.ok() || absl::IsInvalidArgument(fingerprint.status()));
  static_cast<void>((*source)->Identity());  // any number
  const std::vector<TensorSpec>& tensors = (*source)->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i];
    BATON_CHECK((*source)->IndexOf(spec.name) == static_cast<int>(i));
    if (!IsRead({spec.rows, spec.cols})) continue;
    std::vector<float> values(static_cast<size_t>(spec.rows * spec.cols));
    (*source)->ReadFp32(static_cast<int>(i), 0, spec.rows, values.data());
    if (!fingerprint.ok()) continue;
    for (const float value : values) BATON_CHECK(std::isfinite(value));
  }
}

}  // namespace baton
