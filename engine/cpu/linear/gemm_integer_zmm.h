// Integers on zmm registers (AVX-512 F, BW) for IntegerGemm.
#pragma once

#include "engine/cpu/linear/gemm_integer.h"

namespace baton {
namespace {

struct ZmmIntegers {
  using Vec = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kSums = 24;
  static constexpr bool kStepInShorts = false, kOneStream = false;
  static constexpr int kDirectRows = 48, kDirectTileRows = 12, kDirectTilesRows = 8;
  static constexpr int kDirectBlocks = 16;
  static constexpr int kPrefetchRows = kDirectRows + 1;
  static constexpr int DirectTileBlocks(int rows) { return ZmmTileBlocks(rows); }
  static constexpr int kTileRows = 6, kTileBlocks = 4;
  // The lines in flight of all streams together leave room in L1.
  static constexpr int64_t PrefetchBytes(int streams) {
    return streams <= 4 ? 2048 : 8192 / streams / 64 * 64;
  }

  static Vec Load(const void* from) { return _mm512_loadu_si512(from); }
  static void Store(void* to, Vec x) { _mm512_storeu_si512(to, x); }
  static void Copy32(void* to, const void* from) {
    _mm256_storeu_si256(static_cast<__m256i*>(to),
                        _mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static Vec Splat(int32_t x) { return _mm512_set1_epi32(x); }
  static Vec Add(Vec a, Vec b) { return _mm512_add_epi32(a, b); }
  static Vec LowHalves(Vec x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static Vec HighHalves(Vec x) { return LowHalves(_mm512_srli_epi32(x, 4)); }

  static __m512 Floats(const void* from) { return _mm512_loadu_ps(from); }
  using Folded = __m512;
  static Folded LoadFolded(const float* from) { return _mm512_loadu_ps(from); }
  static void StoreFolded(float* to, Folded x) { _mm512_storeu_ps(to, x); }
  static Folded Fold(Vec sum, const char* scales, Folded before) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), Floats(scales), before);
  }
  static void FoldGroup(Vec sum, const char* scales, const float* before, float* after) {
    StoreFolded(after, Fold(sum, scales, LoadFolded(before)));
  }
  template <bool kIsGrouped>
  static void ScaleRow(float* acc, const char* scales, float row) {
    const __m512 row_scale = _mm512_set1_ps(row);
    const __m512 y = kIsGrouped ? _mm512_mul_ps(Floats(acc), row_scale)
                                : _mm512_mul_ps(_mm512_cvtepi32_ps(Load(acc)),
                                                _mm512_mul_ps(row_scale, Floats(scales)));
    _mm512_storeu_ps(acc, y);
  }
};

// The zmm forms of YmmShorts and YmmBytes (gemm_integer_ymm.h).
struct ZmmShorts : ZmmIntegers {
  static constexpr int kWords = 2;
  static Vec Word(Vec bytes, int word) {
    return word == 0 ? _mm512_and_si512(bytes, _mm512_set1_epi16(255))
                     : _mm512_srli_epi16(bytes, 8);
  }
  static Vec Dot(Vec acc, Vec weights, Vec x) { return Add(acc, _mm512_madd_epi16(weights, x)); }
  static void PackStep(const int8_t* values, int32_t* words) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words),
                        _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8), _mm256_srai_epi16(bytes, 8));
  }
};

struct ZmmBytes : ZmmIntegers {
  static constexpr int kWords = 1;
  static Vec Word(Vec bytes, int /*word*/) { return bytes; }
  static Vec Dot(Vec acc, Vec weights, Vec x) {
    return Add(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(weights, x), _mm512_set1_epi16(1)));
  }
  static void PackStep(const int8_t* values, int32_t* words) { Copy32(words, values); }
};

// Reading order for machines whose memory is fastest read in order and without prefetches, because
// they drop prefetches or prefetches hold up other reads (Zen 4): one or two rows read one block
// after the other, and three or four leave to the machine which lines of several blocks to prefetch
// (bench kernels, two threads, compared with 2 to 16 streams with prefetches: int8 1 to 4
// rows 1.14, 1.4, 1.3, 2.2 times as fast, int4 1.3, 1.3, 1.3, 1.1). For more rows products take as
// long as memory: the next 16 KiB of a block come to L2 meanwhile, as evenly and in as long runs as
// possible (compared with three streams with prefetches 2 KiB ahead: int8 5, 8, 16
// rows 1.27, 1.37, 1.23 times as fast, int4 8, 16 rows 1.14, 1.05; three streams without
// prefetches, 8 rows: 1.16 and 0.94; prefetches to L1 instead of L2, 8 rows: 0.7 and 0.85 of the
// speed). What the machine dropped of it is prefetched again 2 KiB before its use, to L1 (8 rows:
// another 1.05 and 1.00).
template <class Integers>
struct ReadInOrder : Integers {
  static constexpr int kInOrderRows = 2, kPrefetchRows = 5, kAheadBlocks = 2;
  static constexpr int DirectTileBlocks(int rows) {
    if (rows >= kPrefetchRows) return kAheadBlocks;
    return rows <= kInOrderRows ? 1 : Integers::DirectTileBlocks(rows);
  }
  static constexpr int64_t PrefetchBytes(int streams) { return streams == kAheadBlocks ? 2048 : 0; }
};

// Reading order of int4, whose products take longer than memory: from 6 rows on one block at once,
// so that the sums of a group and the folded ones fit in registers. (Zen 4, bench kernels,
// alternated: 12 rows 1.15 times as fast, 6 rows 1.03, 8 rows 1.01, 16 to 48 rows 1.00; 5 rows
// 0.95.)
template <class Integers>
struct ReadInOneStream : ReadInOrder<Integers> {
  static constexpr bool kOneStream = true;
  static constexpr int DirectTileBlocks(int rows) {
    return rows >= 6 ? 1 : ReadInOrder<Integers>::DirectTileBlocks(rows);
  }
};

}  // namespace
}  // namespace baton
