// Instructions that this machine may lack, emulated bit by bit from their published semantics: the
// policies of kernel templates for vdpbf16ps and AMX. For units compiled with AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/numerics/bf16.h"
#include "engine/numerics/tile_order.h"

namespace baton {
namespace {

__m512 HighHalves(__m512 x) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), mask));
}
__m512 LowHalves(__m512 x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
}

// vdpbf16ps: per lane fma of the high halves, then of the low halves, flushing denormals.
struct EmulatedVdpbf16 {
  static __m512 Dot(__m512 acc, __m512 a, __m512 b) {
    acc = _mm512_fmadd_ps(HighHalves(a), HighHalves(b), acc);
    return _mm512_fmadd_ps(LowHalves(a), LowHalves(b), acc);
  }
};

struct LowHalfFirst {
  static __m512 Dot(__m512 acc, __m512 a, __m512 b) {
    acc = _mm512_fmadd_ps(LowHalves(a), LowHalves(b), acc);
    return _mm512_fmadd_ps(HighHalves(a), HighHalves(b), acc);
  }
};

// Eight tiles of 16 rows x 64 bytes, one set per thread. A use while not configured is counted as
// garbage: the tiles are filled with NaN patterns by Configure and Release.
struct TileFile {
  alignas(64) uint32_t words[8][16][16];
  bool configured = false;
};
thread_local TileFile tiles;

struct EmulatedTiles {
  static void Fill(bool configured) {
    for (auto& tile : tiles.words) {
      for (auto& row : tile) {
        for (uint32_t& word : row) word = 0x7fc1ffffu;
      }
    }
    tiles.configured = configured;
  }
  static void Configure() { Fill(true); }
  static void Release() { Fill(false); }
  static void CheckConfigured() {
    if (!tiles.configured) __builtin_trap();  // the instruction would raise #UD
  }
  template <int t>
  static void Zero() {
    CheckConfigured();
    for (auto& row : tiles.words[t]) {
      for (uint32_t& word : row) word = 0;
    }
  }
  template <int t>
  static void Load(const void* from, int64_t stride) {
    CheckConfigured();
    for (int64_t row = 0; row < 16; ++row) {
      __builtin_memcpy(tiles.words[t][row], static_cast<const char*>(from) + row * stride, 64);
    }
  }
  template <int t>
  static void Store(void* to, int64_t stride) {
    CheckConfigured();
    for (int64_t row = 0; row < 16; ++row) {
      __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles.words[t][row], 64);
    }
  }
  static float Half(uint32_t word, int64_t odd) {
    return Bf16ToFloat(static_cast<bf16>(odd != 0 ? word >> 16 : word));
  }
  // tdpbf16ps: one group of the tile order for each of 16 x 16 outputs.
  template <int c, int a, int b>
  static void Dot() {
    CheckConfigured();
    for (int64_t m = 0; m < 16; ++m) {
      for (int64_t n = 0; n < 16; ++n) {
        const float acc = __builtin_bit_cast(float, tiles.words[c][m][n]);
        const float sum = TileOrderDot(
            acc, 1, [&](int64_t k) { return Half(tiles.words[a][m][k / 2], k % 2); },
            [&](int64_t k) { return Half(tiles.words[b][k / 2][n], k % 2); });
        tiles.words[c][m][n] = __builtin_bit_cast(uint32_t, sum);
      }
    }
  }
  static int32_t Byte(uint32_t word, int64_t i) {
    return static_cast<int32_t>(word >> 8 * i & 255);
  }
  // tdpbsud: signed bytes of a times unsigned bytes of b, sums modulo 2^32.
  template <int c, int a, int b>
  static void DotInt8() {
    CheckConfigured();
    for (int64_t m = 0; m < 16; ++m) {
      for (int64_t n = 0; n < 16; ++n) {
        uint32_t sum = tiles.words[c][m][n];
        for (int64_t k = 0; k < 64; ++k) {
          const int32_t x = static_cast<int8_t>(Byte(tiles.words[a][m][k / 4], k % 4));
          sum += static_cast<uint32_t>(x * Byte(tiles.words[b][k / 4][n], k % 4));
        }
        tiles.words[c][m][n] = sum;
      }
    }
  }
  static void Prefetch(const void*) {}
};

}  // namespace
}  // namespace baton
