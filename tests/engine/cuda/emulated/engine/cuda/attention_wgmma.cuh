// Stands in for engine/cuda/attention_wgmma.cuh.
#pragma once

#include "engine/cuda/shared_tile.cuh"
#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"
#include "tests/engine/cuda/emulated/engine/cuda/tma.cuh"
#include "tests/engine/cuda/emulated/engine/cuda/wgmma.cuh"

namespace baton {

inline void SetScores(float (&d)[16][4], uint64_t a, uint64_t b) {
  EmulatedBlock::Now().Wgmma(128, d[0], a, b, {.is_set = true});
}
inline void AddScores(float (&d)[16][4], uint64_t a, uint64_t b) {
  EmulatedBlock::Now().Wgmma(128, d[0], a, b);
}
template <int kN>
void AddWeighted(float (&d)[kN][4], const uint32_t (&p)[4], uint64_t v) {
  EmulatedBlock::Now().Wgmma(kN * 8, d[0], 0, v, {.a_registers = p, .is_b_transposed = true});
}
inline uint64_t ValueTile(uint32_t shared_address, int subtile_bytes) {
  return (SwizzledTile(shared_address) & ~(uint64_t{0x3fff} << 16)) |
         static_cast<uint64_t>(subtile_bytes >> 4) << 16;
}
template <typename T, int kN>
void Hold(T (&)[kN][4]) {}
inline void ComputeBefore(float) {}
inline uint32_t MadeAnew(uint32_t number) { return number; }

// A map of pages: their address, distance in bytes, tokens, planes, and values of a row.
inline TensorMap EmulatedPages(const uint8_t* pages, int64_t page_stride, int page_tokens,
                               int n_planes, int row) {
  return {{reinterpret_cast<uint64_t>(pages), static_cast<uint64_t>(page_stride),
           static_cast<uint64_t>(page_tokens), static_cast<uint64_t>(n_planes),
           static_cast<uint64_t>(row)}};
}
inline void CopyPage(uint32_t target, const TensorMap& map, int column, int plane, int page,
                     uint32_t barrier) {
  const int page_tokens = static_cast<int>(map.words[2]), row = static_cast<int>(map.words[4]);
  const bool is_there = page >= 0 && plane < static_cast<int>(map.words[3]);
  const uint64_t plane_at =
      is_there ? page * map.words[1] + static_cast<uint64_t>(plane) * page_tokens * row * 2 : 0;
  const auto* values = reinterpret_cast<const uint16_t*>(map.words[0] + plane_at);
  EmulatedBlock::Now().StartBox(
      target, EmulatedTensorMap(values, is_there ? page_tokens : 0, row, row, page_tokens, 1),
      column, 0, barrier);
}

template <int kThreads>
void ComputingBarrier() {
  EmulatedBlock::Now().BarrierOfFirst(kThreads);
}
inline void WaitForTurn(int) {}
inline void GiveTurn(int) {}

}  // namespace baton
