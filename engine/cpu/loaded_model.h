// Input of a CPU backend: the model, opened and described, and the threads that compute it.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/checkpoint/weight_source.h"
#include "engine/model/model_desc.h"
#include "engine/model/rope_tables.h"
#include "engine/step/backend.h"
#include "engine/threads/compute_pool.h"

namespace baton {

struct LoadedModel {
  ModelDesc desc;    // max_positions is already limited to EngineOptions::max_context
  RopeTables ropes;  // tables for desc
  // Hash of the tables' first positions, part of the model fingerprint: a C library that rounds
  // sines differently makes other keys, and such workers must not share KV.
  uint64_t rope_digest = 0;
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<ComputePool> pool;
};

// Errors, each with what to change: options out of range, a machine without AVX2, a model that
// cannot be read. The threads of the pool run when the function returns.
absl::StatusOr<LoadedModel> OpenModel(const EngineOptions& options);

}  // namespace baton
