// Reads the weights of a model, tensor by tensor, from a checkpoint folder, a GGUF file, or seeded
// random numbers (random:<config.json>). Rows come out as bf16 (rounded to nearest even) or fp32,
// whatever the stored type. Immutable: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/status.h"
#include "engine/model/model_desc.h"
#include "engine/model/model_tensors.h"
#include "engine/numerics/bf16.h"
#include "engine/threads/compute_pool.h"

namespace baton {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // Index of a tensor in tensors() by its engine name (model_tensors.h); CHECKs that it exists.
  int IndexOf(const std::string& name) const;

  // Reads rows [row, row + count) of a tensor, which must exist, into out (count, cols).
  virtual void ReadBf16(int tensor, int64_t row, int64_t count, bf16* out) const = 0;
  virtual void ReadFp32(int tensor, int64_t row, int64_t count, float* out) const = 0;
  // Hash of config and tensor values: equal for equal models wherever they are stored. Reads
  // everything, and so checks it: a value that is NaN or infinite is InvalidArgument that names
  // tensor and row. Called by the thread that calls `pool`.
  virtual absl::StatusOr<uint64_t> Fingerprint(ComputePool& pool) const = 0;
  // Cheap hash that changes when the files do: key of the packed copy.
  virtual uint64_t Identity() const = 0;

 protected:
  explicit WeightSource(const ModelDesc& model);
  ModelDesc model_;
  std::vector<TensorSpec> tensors_;

 private:
  std::unordered_map<std::string, int> places_;  // index into tensors_ by name
};

// Description of the model that `model` names (model_path.h). NotFound: no such folder or file.
// InvalidArgument: a config or file that is not supported; the error names the field.
absl::StatusOr<ModelDesc> ReadModelDesc(const std::string& model);

// Opens the weights of `model`, which `desc` describes. random_seed: for random weights only.
// NotFound: a file or tensor is missing. InvalidArgument: a tensor of another shape or type, a
// damaged file. Errors name folder, file, tensor, and the shape wanted.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenWeightSource(const std::string& model,
                                                               const ModelDesc& desc,
                                                               uint64_t random_seed);

}  // namespace baton
