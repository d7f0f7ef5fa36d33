// One tensor of a checkpoint file as the rest of the engine sees it: rows of fp32 or bf16 values,
// whatever is stored. A tensor points into the mapped files of its checkpoint, which must outlive
// the tensor. Immutable: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/quantized_parts.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/model/model_desc.h"
#include "engine/numerics/bf16.h"

namespace baton {

class StoredTensor {
 public:
  // Finds tensor `name` of shape [rows, cols] ([rows] for a vector). A matrix "<module>.weight" may
  // be stored quantised instead, by any of the schemes. NotFound: no such tensor. InvalidArgument:
  // another shape, a type that is not read, values and codes at once. Errors name folder, tensor
  // and the shape wanted. Reads no values.
  static absl::StatusOr<StoredTensor> Open(const Checkpoint& checkpoint,
                                           const QuantizationDesc& quantization,
                                           const std::string& name,
                                           const std::vector<int64_t>& shape);
  // Like Open above, for a tensor of any supported type in a GGUF file.
  static absl::StatusOr<StoredTensor> Open(const GgufFile& file, const std::string& name,
                                           const std::vector<int64_t>& shape);

  const std::string& name() const { return name_; }

  // Reads rows [row, row + count), which must exist, into out (count, cols); cols is 1 for a
  // vector. No allocation.
  void ReadBf16(int64_t row, int64_t count, bf16* out) const;  // rounded to nearest even
  void ReadFp32(int64_t row, int64_t count, float* out) const;

  // Hash of the stored bytes. Reads everything, and so checks it: a value that is NaN or infinite,
  // or would be so in bf16, is InvalidArgument that names tensor, row and column.
  absl::StatusOr<uint64_t> Digest() const;
  // Text that describes how values are stored, part of fingerprints.
  std::string Encoding() const;
  // The first stored bytes: a cheap probe.
  std::span<const std::byte> Head(size_t max_bytes) const;

 private:
  static absl::StatusOr<StoredTensor> OpenPlain(const Checkpoint& checkpoint,
                                                const std::string& name,
                                                const std::vector<int64_t>& shape);
  static absl::StatusOr<StoredTensor> OpenQuantized(const Checkpoint& checkpoint,
                                                    const QuantizationDesc& quantization,
                                                    const std::string& name, int64_t rows,
                                                    int64_t cols);
  template <typename Out, typename Convert>
  void ReadBlocks(int64_t row, int64_t count, Out* out, const Convert& convert) const;
  absl::Status CheckPart(const TensorPart& part, size_t offset, size_t size) const;
  absl::Status CheckBlocks() const;
  absl::Status BadValue(const std::string& part, int64_t row, int64_t col) const;

  std::string origin_, name_;  // origin: folder or file
  int64_t cols_ = 1;
  Dtype dtype_ = Dtype::kBf16;                // dtype of an unquantised tensor
  std::optional<QuantizedTensor> quantized_;  // null: unquantised
  const GgufTensorType* blocks_ = nullptr;    // type of a quantised tensor of a GGUF file
  std::vector<TensorPart> parts_;             // values or codes first
};

}  // namespace baton
