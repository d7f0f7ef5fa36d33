// Vector of the attention chains for vdpbf16ps, or its emulation in the tests (pair_chains.h). For
// kernel units with AVX-512.
#pragma once

#include "engine/cpu/attention/attention_chains.h"
#include "engine/cpu/machine/pair_chains.h"

namespace baton {
namespace {

// DotBf16::Dot(acc, a, b): the instruction.
template <class DotBf16>
struct PairVector {
  using Float = __m512;
  using Word = uint32_t;
  static constexpr int kWidth = 16;
  static constexpr int kMaxTileRows = 6;
  static constexpr bool kReadsNumbers = true;
  static constexpr int TileRows(LineSource /*source*/) { return kMaxTileRows; }
  static constexpr bool BothChains(LineSource /*source*/) { return true; }
  static constexpr bool kSideBySide = true;
  // Four columns of three rows: 24 sums. (Zen 4, 64 dims, 4,096 keys: 81 % of the bandwidth instead
  // of 74 with two columns; int8, which takes more registers to widen, is 5 % slower with four.)
  static constexpr int Columns(int rows, LineSource source) {
    return rows <= (OfNumbers(source) ? 2 : 3) ? 4 : 2;
  }
  static constexpr int kWords = 16;
  static constexpr int kStepLines = 2;
  static constexpr bool kLaysOut = false;
  static constexpr bool kPrefetch = true, kTileAhead = true;

  static Float Zero() { return _mm512_setzero_ps(); }
  static Float Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(float* to, Float x) { _mm512_storeu_ps(to, x); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Dot(Float a, Float b, Float acc) { return DotBf16::Dot(acc, a, b); }
  static Float Mul(Float a, Float b) { return Dot(a, b, Zero()); }
  static void Hold(Float* /*x*/) {}
  static Float Broadcast(const uint32_t* word) {
    int32_t bits;
    __builtin_memcpy(&bits, word, sizeof bits);
    return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
  }
  static Float BroadcastBoth(const uint32_t* words) { return BroadcastPair(words); }
  template <int half>
  static Float LoadStep(const bf16* line, int64_t line_stride) {
    return PairWords<half>(_mm512_loadu_si512(line), _mm512_loadu_si512(line + line_stride));
  }
  static Float AddChains(Float lower, Float upper) { return AddPairChains(lower, upper); }

  // The words of a chain: two numbers as bf16, exact.
  template <int chain>
  static Float LoadNumbers(const int8_t* numbers, int64_t stride) {
    const __m512i high = Widen(numbers + chain * stride);
    const __m512i low = Widen(numbers + (chain + 2) * stride);
    return _mm512_castsi512_ps(_mm512_or_si512(high, _mm512_srli_epi32(low, 16)));
  }

  // Stores sixteen bf16 as words of both chains.
  static void StoreGroup(__m256i logical, uint32_t* words) {
    const __m256i order = _mm256_broadcastsi128_si256(PairOrder());
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm256_shuffle_epi8(logical, order));
  }
  static void PackQuery(const bf16* q, int head_dim, uint32_t* words) {
    for (int i = 0; i < head_dim; i += kLanes)
      StoreGroup(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i)), words + i / 2);
    if (head_dim % 32 != 0) StoreGroup(_mm256_setzero_si256(), words + head_dim / 2);
  }
  static void StoreWeights(Lanes p, uint32_t* words) {
    StoreGroup(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(p.v), 16)), words);
  }
};

}  // namespace
}  // namespace baton
