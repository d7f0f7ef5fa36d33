// Warp matrix operation mma.sync m16n8k16 for bf16 with fp32 accumulators, as PTX. Device code
// only; all 32 lanes of a warp call together (PTX ISA, "mma.m16n8k16"). With g = lane / 4 and t =
// lane % 4 a lane holds
//   of A: rows g, g + 8, g, g + 8 at k = 2t, 2t, 2t + 8, 2t + 8, two values in each register,
//   of B: column g at k = 2t and 2t + 8, two values in each register,
//   of C: row g at columns 2t, 2t + 1, then row g + 8 at the same columns.
#pragma once

#include <cstdint>

namespace baton {

__device__ __forceinline__ void MmaAdd(float (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace baton
