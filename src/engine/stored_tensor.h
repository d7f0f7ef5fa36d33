// One tensor of a checkpoint file as the rest of the engine sees it: rows of fp32 or bf16 values,
// whatever is stored. Points into the mapped files of its Checkpoint, which must outlive it.
// Immutable: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/finite_check.h"
#include "engine/model_desc.h"
#include "engine/numerics/bf16.h"
#include "engine/safetensors.h"

namespace baton {

class StoredTensor {
 public:
  // Finds tensor `name` of shape [rows, cols] ([rows] for a vector). Errors name folder, tensor and
  // the shape wanted. Reads no values.
  static absl::StatusOr<StoredTensor> Open(const Checkpoint& checkpoint, const std::string& name,
                                           const std::vector<int64_t>& shape);

  const std::string& name() const { return parts_[0].name; }

  // Rows [row, row + count) into out (count * cols).
  void ReadBf16(int64_t row, int64_t count, bf16* out) const;
  void ReadFp32(int64_t row, int64_t count, float* out) const;

  // Hash of what is stored. Reads everything, and so checks it: a value that is NaN or infinite, or
  // would be in bf16, is an error that names tensor, row and column.
  absl::StatusOr<uint64_t> Digest() const;
  // Text that tells how values are stored, part of fingerprints.
  std::string Encoding() const;
  // The first bytes of what is stored: a cheap probe.
  std::span<const std::byte> Head(size_t most_bytes) const;

 private:
  // The bytes of one tensor of the file.
  struct Part {
    std::string name;
    std::span<const std::byte> bytes;
    int64_t cols;
    FiniteRule rule;
  };

  absl::Status CheckPart(const Part& part, size_t offset, size_t size) const;

  std::string folder_;
  int64_t cols_ = 1;
  Dtype dtype_ = Dtype::kBf16;
  std::vector<Part> parts_;
};

}  // namespace baton
