// Converts tiles that pages hold in another form to the form that the chains read: int8 numbers to
// bf16, which is exact, and values that lie in keys. Written once for every path. For kernel units.
#pragma once

#include "engine/cpu/attention/attention_tile.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

// Line: word i = even[i] below odd[i], both as bf16: a number as fp32 has it in its upper half, and
// zeros below. (AMX Xeon, 64 numbers: 1.60 ns by one shuffle of both; 1.72 by a shift and an or.)
#if defined(__AVX512F__)
inline __m512i Widen(const int8_t* numbers) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers));
  return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}
inline __attribute__((always_inline)) void WidenLine(const int8_t* even, const int8_t* odd,
                                                     void* line) {
  const __m512i upper =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  constexpr __mmask64 kLowHalves = 0x3333333333333333;
  _mm512_storeu_si512(line, _mm512_mask_shuffle_epi8(Widen(odd), kLowHalves, Widen(even), upper));
}
#else
inline __m256i Widen(const int8_t* numbers) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(numbers));
  return _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}
inline void WidenLine(const int8_t* even, const int8_t* odd, bf16* line) {
  for (int half = 0; half < 2; ++half)
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(line) + half,
        _mm256_or_si256(_mm256_srli_epi32(Widen(even + 8 * half), 16), Widen(odd + 8 * half)));
}
#endif

inline const int8_t* Numbers(const void* group) {
  return static_cast<const int8_t*>(group) + kInt8ScaleBytes;
}

template <bool kAhead>
void PrefetchLine(const void* group, int64_t at) {
  if (kAhead) _mm_prefetch(static_cast<const char*>(group) + at, _MM_HINT_T0);
}

// One group of keys, zeros beyond key_dim. next: the group to prefetch.
template <bool kAhead>
void WidenKeys(const void* group, const void* next, int key_dim, bf16* k) {
  const int8_t* const numbers = Numbers(group);
  for (int64_t d = 0; d < key_dim; d += 4) {
    PrefetchLine<kAhead>(next, d * kLanes);
    for (int64_t i = d; i < d + 4; i += 2)
      WidenLine(numbers + i * kLanes, numbers + (i + 1) * kLanes, k + i * kLanes);
  }
  for (int64_t d = key_dim; d % 32 != 0; ++d)
    for (int i = 0; i < kLanes; ++i) k[d * kLanes + i] = 0;
}

template <bool kAhead>
void WidenValues(const void* group, const void* next, int value_dim, bf16* v) {
  const int8_t* row = Numbers(group);
  for (int key = 0; key < kGroupKeys; key += 2, row += 2 * value_dim)
    for (int d = 0; d < value_dim; d += 2 * kLanes) {
      PrefetchLine<kAhead>(next, key * value_dim + 2 * d);
      for (int i = d; i < d + 2 * kLanes && i < value_dim; i += kLanes, v += 2 * kLanes)
        WidenLine(row + i, row + value_dim + i, v);
    }
}

// A K line has, for each pair of keys, the words (k0d0, k0d1), (k1d0, k1d1); a V line needs (k0d0,
// k1d0), (k0d1, k1d1). So the middle halves change places, and then the eight pairs of the K lines
// of two dims each go to the eight V lines of a group.
#if defined(__AVX512F__)
inline __m512i SwapMiddles(const bf16* line) {
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  return _mm512_shuffle_epi8(_mm512_loadu_si512(line), order);
}

// Eight K lines become sixteen dims of the V lines: their pairs, eight bytes each, transposed.
inline void TurnDims(const bf16* k, int value_dim, bf16* v) {
  __m512i twos[8];  // pair p of lines 2i and 2i + 1 in 128 bits: even p in twos[i], odd in [4 + i]
  for (int i = 0; i < 4; ++i) {
    const __m512i low = SwapMiddles(k + 4 * i * kLanes);
    const __m512i high = SwapMiddles(k + (4 * i + 2) * kLanes);
    twos[i] = _mm512_unpacklo_epi64(low, high);
    twos[4 + i] = _mm512_unpackhi_epi64(low, high);
  }
  const auto store = [&](int pair, __m512i line) {
    _mm512_storeu_si512(v + static_cast<int64_t>(pair) * 2 * value_dim, line);
  };
  for (int odd = 0; odd < 2; ++odd) {
    const __m512i* const t = twos + 4 * odd;
    const __m512i a = _mm512_shuffle_i64x2(t[0], t[1], 0x44);  // pairs 0, 1 of each four
    const __m512i b = _mm512_shuffle_i64x2(t[2], t[3], 0x44);
    const __m512i c = _mm512_shuffle_i64x2(t[0], t[1], 0xee);  // pairs 2, 3 of each four
    const __m512i d = _mm512_shuffle_i64x2(t[2], t[3], 0xee);
    store(odd, _mm512_shuffle_i64x2(a, b, 0x88));
    store(2 + odd, _mm512_shuffle_i64x2(a, b, 0xdd));
    store(4 + odd, _mm512_shuffle_i64x2(c, d, 0x88));
    store(6 + odd, _mm512_shuffle_i64x2(c, d, 0xdd));
  }
}
#else
inline void TurnDims(const bf16* k, int value_dim, bf16* v) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  for (int d = 0; d < kLanes; d += 2, k += 2 * kLanes) {
    alignas(32) uint64_t pairs[kGroupKeys / 2];
    for (int half = 0; half < 2; ++half) {
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(k) + half);
      _mm256_store_si256(reinterpret_cast<__m256i*>(pairs) + half,
                         _mm256_shuffle_epi8(words, order));
    }
    for (int pair = 0; pair < kGroupKeys / 2; ++pair)
      __builtin_memcpy(v + (pair * value_dim + d) * 2, &pairs[pair], sizeof(uint64_t));
  }
}
#endif

// The first value_dim dims of a K group as a V group.
inline void ValuesOfKeys(const bf16* k, int value_dim, bf16* v) {
  for (int d = 0; d < value_dim; d += kLanes) TurnDims(k + d * kLanes, value_dim, v + 2 * d);
}

template <bool kAhead>
void MakeKeys(const KeyTile& tile) {
  const TileSource& source = *tile.source;
  if (!source.is_int8) return;
  for (int j = 0; j < tile.all_groups; ++j)
    WidenKeys<kAhead>(source.k[j], source.next_k[j], tile.key_dim, source.new_k[j]);
}

template <bool kAhead>
void MakeValues(const KeyTile& tile) {
  const TileSource& source = *tile.source;
  for (int j = 0; j < tile.all_groups; ++j) {
    if (source.v[j] == nullptr)
      ValuesOfKeys(tile.k[j], tile.value_dim, source.new_v[j]);
    else
      WidenValues<kAhead>(source.v[j], source.next_v[j], tile.value_dim, source.new_v[j]);
  }
}

}  // namespace
}  // namespace baton
