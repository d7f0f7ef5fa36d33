// The policies of kernel templates for vpdpbusd and AMX tiles, emulated bit by bit from their
// published semantics. For units that include zmm_on_ymm.h, which emulates everything else.
#pragma once

#include "tests/engine/cpu/zmm_on_ymm.h"

namespace baton {
namespace {

// Emulates vpdpbusd, which the kernels for VNNI contain as text (gemm_integer_vnni.cc).
template <class Bytes>
struct EmulatedVnni : Bytes {
  static __m512i Dot(__m512i acc, __m512i weights, __m512i x) {
    return _mm512_dpbusd_epi32(acc, weights, x);
  }
};

// vdpbf16ps with its two products exchanged.
struct LowHalfFirst {
  static __m512 Swap(__m512 x) {
    const __m512i words = _mm512_castps_si512(x);
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_slli_epi32(words, 16), _mm512_srli_epi32(words, 16)));
  }
  static __m512 Dot(__m512 acc, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(acc, __builtin_bit_cast(__m512bh, Swap(a)),
                            __builtin_bit_cast(__m512bh, Swap(b)));
  }
};

// Eight tiles of 16 rows x 64 bytes, one set per thread. Configure and Release fill the tiles with
// NaN patterns, so that a use of unconfigured tiles is visible.
struct TileFile {
  alignas(64) uint32_t words[8][16][16];
  bool configured = false;
  int rows[8];
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
    for (int& rows : tiles.rows) rows = 16;
  }
  static void Configure() { Fill(true); }
  static void ConfigureRows(int n) {
    Fill(true);
    for (int t = 0; t <= 4; ++t) tiles.rows[t] = n;
  }
  static void Release() { Fill(false); }
  static void CheckConfigured() {
    if (!tiles.configured) __builtin_trap();  // the instruction would raise #UD
  }
  template <int c, int a, int b>
  static void CheckRows() {
    CheckConfigured();
    if (tiles.rows[c] != tiles.rows[a] || tiles.rows[b] != 16) __builtin_trap();  // #UD too
  }
  template <int t>
  static void Zero() {
    CheckConfigured();
    for (int row = 0; row < tiles.rows[t]; ++row)
      _mm512_store_si512(tiles.words[t][row], _mm512_setzero_si512());
  }
  template <int t>
  static void Load(const void* from, int64_t stride) {
    CheckConfigured();
    for (int64_t row = 0; row < tiles.rows[t]; ++row) {
      __builtin_memcpy(tiles.words[t][row], static_cast<const char*>(from) + row * stride, 64);
    }
  }
  template <int t>
  static void LoadOnce(const void* from, int64_t stride) {  // differs only in cache behaviour
    Load<t>(from, stride);
  }
  template <int t>
  static void Store(void* to, int64_t stride) {
    CheckConfigured();
    for (int64_t row = 0; row < tiles.rows[t]; ++row) {
      __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles.words[t][row], 64);
    }
  }
  // tdpbf16ps: for each of 16 x 16 outputs, the sums of even and of odd products, fused, from +0
  // on; then c += even + odd.
  template <int c, int a, int b>
  static void Dot() {
    CheckRows<c, a, b>();
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (int m = 0; m < tiles.rows[c]; ++m) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      for (int pair = 0; pair < 16; ++pair) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(tiles.words[a][m][pair]));
        const __m512i w = _mm512_load_si512(tiles.words[b][pair]);
        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
        odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, high)),
                              _mm512_castsi512_ps(_mm512_and_si512(w, high)), odd);
      }
      uint32_t* const acc = tiles.words[c][m];
      _mm512_store_ps(acc, _mm512_add_ps(_mm512_load_ps(acc), _mm512_add_ps(even, odd)));
    }
  }
  // tdpbsud: signed bytes of a times unsigned bytes of b, sums modulo 2^32.
  template <int c, int a, int b>
  static void DotInt8() {
    CheckRows<c, a, b>();
    for (int m = 0; m < tiles.rows[c]; ++m) {
      uint32_t* const acc = tiles.words[c][m];
      __m512i sum = _mm512_load_si512(acc);
      for (int quad = 0; quad < 16; ++quad) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(tiles.words[a][m][quad]));
        sum = _mm512_dpbusd_epi32(sum, _mm512_load_si512(tiles.words[b][quad]), x);
      }
      _mm512_store_si512(acc, sum);
    }
  }
  // tdpbssd: signed bytes of both, sums modulo 2^32.
  template <int c, int a, int b>
  static void DotSigned() {
    CheckRows<c, a, b>();
    for (int m = 0; m < tiles.rows[c]; ++m) {
      uint32_t* const acc = tiles.words[c][m];
      __m512i sum = _mm512_load_si512(acc);
      for (int quad = 0; quad < 16; ++quad) {
        const __m256i x = _mm256_set1_epi32(static_cast<int>(tiles.words[a][m][quad]));
        const __m512i w = _mm512_load_si512(tiles.words[b][quad]);
        sum.lo = AddSignedProducts(sum.lo, w.lo, x);
        sum.hi = AddSignedProducts(sum.hi, w.hi, x);
      }
      _mm512_store_si512(acc, sum);
    }
  }
  // Two products of every second byte are exact on shorts.
  static __m256i AddSignedProducts(__m256i acc, __m256i a, __m256i b) {
    const __m256i even = _mm256_madd_epi16(_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srai_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
  }
  static void Prefetch(const void*) {}
};

}  // namespace
}  // namespace baton
