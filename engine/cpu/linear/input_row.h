// The row that a linear layer packs. For kernel units.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/linear_job.h"

namespace baton {
namespace {

// Row `row` of x, or its norm, computed in `room`: the norm is packed from there and never written
// to memory.
inline const bf16* InputRow(const LinearJob& job, int64_t row, bf16* room) {
  const int64_t place = job.x_rows != nullptr ? job.x_rows[row] : row;
  const bf16* const x = job.x + place * job.x_stride;
  if (job.norm.apply == nullptr) return x;
  job.norm.apply(job.norm, x, room);
  return room;
}

}  // namespace
}  // namespace baton
