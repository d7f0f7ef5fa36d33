// Loads of 8 x 8 matrices of bf16 from shared memory, as PTX: fragments of mma.sync (PTX ISA,
// "ldmatrix"). All 32 lanes of a warp call together. Device code only.
#pragma once

#include <cstdint>

namespace baton {

// Loads four matrices: lane 8 i + j tells where row j of matrix i is, 16 bytes. A lane gets of each
// matrix row lane / 4 at columns 2 (lane % 4) and one more.
__device__ __forceinline__ void LoadMatrices(uint32_t (&matrices)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row_address)
               : "memory");
}

}  // namespace baton
