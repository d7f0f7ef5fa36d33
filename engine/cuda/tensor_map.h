// How a matrix of bf16 lies in memory, for copies by the tensor memory accelerator (tma.cuh): a
// CUtensorMap. A kernel gets it as a `const __grid_constant__` parameter.
#pragma once

#include <cstdint>

namespace baton {

struct alignas(64) TensorMap {
  uint64_t words[16];
};

}  // namespace baton
