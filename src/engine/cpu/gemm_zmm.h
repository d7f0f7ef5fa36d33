// The policies of VectorGemm on zmm registers: for the FMA of AVX-512F, and for an instruction that
// takes pairs of bf16 (vdpbf16ps, or its emulation in the tests).
#pragma once

#include "engine/cpu/gemm_vector.h"

namespace baton {
namespace {

struct ZmmRegisters {
  using Vec = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kPasses = 2;
  static constexpr int kTileRows = 6, kTileVecs = 4;

  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec LoadAcc(const float* from) { return _mm512_load_ps(from); }
  static void StoreAcc(float* to, Vec x) { _mm512_store_ps(to, x); }
  static Vec LoadWords(const uint32_t* from) {
    return _mm512_castsi512_ps(_mm512_load_si512(from));
  }
  static void StoreWords(uint32_t* to, Vec x) { _mm512_store_si512(to, _mm512_castps_si512(x)); }
  static Vec Broadcast(const uint32_t* from) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*from)));
  }
};

// With AVX-512F FMA: a word is one k as fp32.
struct Avx512Fma : ZmmRegisters {
  static constexpr int kSteps = 16;
  static constexpr int64_t kBlockGroups = 4;  // 32 KiB of words
  static constexpr int64_t kPrefetchBytes = 512;
  static constexpr int kDirectRows = 40, kDirectTileRows = 12, kDirectTilesRows = 8;
  static constexpr int kDirectBlocks = 16;
  static constexpr int DirectVecs(int rows) { return ZmmTileBlocks(rows); }

  static Vec Dot(Vec acc, Vec a, Vec b) { return _mm512_fmadd_ps(a, b, acc); }
  static Vec Weights(const bf16* block, int64_t step, int /*v*/, int pass) {
    const __m512i line = _mm512_load_si512(block + step * 32);
    return _mm512_castsi512_ps(
        pass == 0 ? _mm512_slli_epi32(line, 16)
                  : _mm512_and_si512(line, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void PackGroup(const bf16* x, uint32_t* e, uint32_t* o) {
    const __m512i pairs = _mm512_loadu_si512(x);
    _mm512_storeu_si512(e, _mm512_slli_epi32(pairs, 16));
    _mm512_storeu_si512(o,
                        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

// DotBf16::Dot(acc, a, b), per lane: acc = fma(a.hi, b.hi, acc); acc = fma(a.lo, b.lo, acc).
// So that each chain meets its k in ascending order, of every four k the word of chain e is
// (hi = k0, lo = k2) and that of chain o is (hi = k1, lo = k3).
template <class DotBf16>
struct Bf16Pairs : ZmmRegisters, DotBf16 {
  static constexpr int kSteps = 8;
  static constexpr int64_t kBlockGroups = 4;  // 16 KiB of words
  static constexpr int64_t kPrefetchBytes = 0;
  static constexpr int kDirectRows = 48, kDirectTileRows = 12, kDirectTilesRows = 12;
  static constexpr int kDirectBlocks = 4;
  static constexpr int DirectVecs(int rows) { return rows <= 6 ? 4 : 2; }

  static Vec Weights(const bf16* block, int64_t step, int /*v*/, int pass) {
    const __m512i k01 = _mm512_load_si512(block + step * 64);
    const __m512i k23 = _mm512_load_si512(block + step * 64 + 32);
    constexpr __mmask32 kLow = 0x55555555;
    return _mm512_castsi512_ps(pass == 0
                                   ? _mm512_mask_mov_epi16(_mm512_slli_epi32(k01, 16), kLow, k23)
                                   : _mm512_mask_mov_epi16(k01, kLow, _mm512_srli_epi32(k23, 16)));
  }
  static void PackGroup(const bf16* x, uint32_t* e, uint32_t* o) {
    // Halves of the eight words of e, then of o, low half first.
    alignas(64) static constexpr uint16_t kOrder[32] = {2,  0,  6,  4,  10, 8,  14, 12, 18, 16, 22,
                                                        20, 26, 24, 30, 28, 3,  1,  7,  5,  11, 9,
                                                        15, 13, 19, 17, 23, 21, 27, 25, 31, 29};
    const __m512i words =
        _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), _mm512_loadu_si512(x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(e), _mm512_castsi512_si256(words));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(o), _mm512_extracti64x4_epi64(words, 1));
  }
};

}  // namespace
}  // namespace baton
