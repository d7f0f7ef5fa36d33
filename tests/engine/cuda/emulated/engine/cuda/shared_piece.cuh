// Stands in for engine/cuda/shared_piece.cuh.
#pragma once

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

struct alignas(16) Piece {
  uint32_t pairs[4];
};

inline Piece LoadSharedPiece(uint32_t address) {
  Piece piece;
  for (uint32_t i = 0; i < 4; ++i)
    piece.pairs[i] = EmulatedBlock::Now().LoadShared(address + 4 * i);
  return piece;
}
inline float LoadSharedBf16(uint32_t address) {
  const uint32_t pair = EmulatedBlock::Now().LoadShared(address & ~3u);
  return __builtin_bit_cast(float, address % 4 == 0 ? pair << 16 : pair & 0xffff0000u);
}

}  // namespace baton
