// Reads of bf16 from shared memory, after a wait for the copy that brought them and a barrier.
// Device code only.
#pragma once

#include <cstdint>

namespace baton {

// Eight bf16, the unit of wide loads.
struct alignas(16) Piece {
  uint32_t pairs[4];
};

__device__ __forceinline__ Piece LoadSharedPiece(uint32_t address) {
  Piece piece;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.pairs[0]), "=r"(piece.pairs[1]), "=r"(piece.pairs[2]),
                 "=r"(piece.pairs[3])
               : "r"(address));
  return piece;
}

__device__ __forceinline__ float LoadSharedBf16(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address));
  return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

}  // namespace baton
