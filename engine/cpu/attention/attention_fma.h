// Vector of the attention chains for fp32 FMA: a word is one bf16 widened to fp32; even and odd
// elements of a line come apart by a shift and a mask. For kernel units.
#pragma once

#include "engine/cpu/attention/attention_chains.h"

namespace baton {
namespace {

#if defined(__AVX512F__)
struct FmaRegisters {
  using Float = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kMaxTileRows = 12;
  static constexpr bool kReadsNumbers = true;
  // Both chains of a tile in the pages at once: memory is read once and evenly. A tile that is laid
  // out lies in L2; there L1 loads are the limit, and 24 sums of one chain, of which a broadcast
  // serves four columns and a line six rows, need fewer than 24 of two. (AMX Xeon, 2 threads, 4,096
  // keys, pages by both chains against one: bf16 4 rows 1.3 to 1.4 times as fast, 8 rows 1.5 to
  // 1.6; int8 4 rows 1.5 and, with 128 dims, 2.1; 8 rows 1.7.)
  static constexpr bool BothChains(LineSource source) { return InPages(source); }
  static constexpr int TileRows(LineSource source) { return InPages(source) ? 12 : 6; }
  static constexpr int Columns(int rows, LineSource source) {
    if (!InPages(source)) return 4;
    return rows <= 2 ? 4 : rows <= 6 ? 2 : 1;
  }
  static Float Zero() { return _mm512_setzero_ps(); }
  static Float Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(float* to, Float x) { _mm512_storeu_ps(to, x); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Broadcast(const float* word) { return _mm512_set1_ps(*word); }
  static Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static void Hold(Float* /*x*/) {}
  static Float Dot(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  template <int chain>
  static Float LoadNumbers(const int8_t* numbers, int64_t stride) {
    return _mm512_castsi512_ps(Widen(numbers + chain * stride));
  }
  template <int chain>
  static Float LoadStep(const bf16* line, int64_t /*line_stride*/) {
    const __m512i pairs = _mm512_loadu_si512(line);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(chain == kEven ? _mm512_slli_epi32(pairs, 16)
                                              : _mm512_and_si512(pairs, high));
  }
};
#else
struct FmaRegisters {
  using Float = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kMaxTileRows = 3;
  static constexpr bool kReadsNumbers = true;
  static constexpr int TileRows(LineSource /*source*/) { return kMaxTileRows; }
  static constexpr bool BothChains(LineSource /*source*/) { return true; }
  static constexpr int Columns(int rows, LineSource /*source*/) { return rows == 1 ? 4 : 2; }
  static Float Zero() { return _mm256_setzero_ps(); }
  static Float Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Float x) { _mm256_storeu_ps(to, x); }
  static Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float Broadcast(const float* word) { return _mm256_set1_ps(*word); }
  static Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  // Keeps the value in its register: the compiler would load it again for every row.
  static void Hold(Float* x) { __asm__("" : "+x"(*x)); }
  static Float Dot(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  template <int chain>
  static Float LoadNumbers(const int8_t* numbers, int64_t stride) {
    const __m128i bytes =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(numbers + chain * stride));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  template <int chain>
  static Float LoadStep(const bf16* line, int64_t /*line_stride*/) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line));
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(chain == kEven ? _mm256_slli_epi32(pairs, 16)
                                              : _mm256_and_si256(pairs, high));
  }
};
#endif

struct FmaVector : FmaRegisters {
  using Word = float;
  static constexpr int kWords = 32;
  static constexpr int kStepLines = 1;
  static constexpr bool kSideBySide = false;
  static constexpr bool kLaysOut = true;
  static constexpr bool kPrefetch = true;
  static constexpr bool kTileAhead = false;  // int8 KV: a fifth slower with it, AVX2 on Zen 4

  static void PackQuery(const bf16* q, int head_dim, float* words) {
    for (int i = 0; i < head_dim; i += kLanes) baton::Store(words + i, LoadBf16<Lanes>(q + i));
    if (head_dim % 32 != 0) baton::Store(words + head_dim, Splat<Lanes>(0.0f));
  }
  static void StoreWeights(Lanes p, float* words) { baton::Store(words, p); }
};

}  // namespace
}  // namespace baton
