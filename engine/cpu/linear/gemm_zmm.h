// The policies of VectorGemm on zmm registers: for the FMA of AVX-512F, and for an instruction that
// takes pairs of bf16 (vdpbf16ps, or its emulation in the tests).
#pragma once

#include "engine/cpu/linear/gemm_vector.h"
#include "engine/cpu/machine/pair_chains.h"

namespace baton {
namespace {

struct ZmmRegisters {
  using Vec = __m512;
  static constexpr int kLanes = 16, kRegisters = 32;
  static constexpr int LongStreams(int64_t /*k*/) { return 0; }

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

// AVX-512F FMA: a word is one k as fp32.
struct Avx512Fma : ZmmRegisters {
  static constexpr int kPasses = 2;
  static constexpr int kSteps = 16;
  static constexpr int kTileRows = 6, kTileVecs = 4;
  static constexpr int64_t kBlockGroups = 4;  // 32 KiB of words
  static constexpr int64_t PrefetchBytes(int /*streams*/) { return 512; }
  static constexpr int kDirectRows = 40, kDirectTileRows = 12, kDirectTilesRows = 8;
  static constexpr int kPrefetchRows = kDirectRows + 1;
  static constexpr int DirectBlocks(int64_t /*k*/) { return 16; }
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

// FMA for one row on machines with AMX, whose other rows go to tiles. Fewer and longer streams than
// above, which go on through adjacent blocks and are prefetched across their ends. (AMX Xeon, 2
// cores, weights from memory, share of the bandwidth with 16 streams of a block each, 8 and 4: K
// 768 88-90, 90-91, 82-84 %; K 2,048 85-88, 88-93, 89-92; K 8,192 82-85, 91, 93-95. In another hour
// 4 streams of one block and of four: K 2,048 93-95 and 97 %, K 8,192 97 and 97. 8 streams of one
// block and of four in decode of the 125M shape: 80-82 and 82-84 % of its limit; of eight no more.)
struct AmxFma : Avx512Fma {
  static constexpr int64_t PrefetchBytes(int streams) { return 8192 / streams; }
  static constexpr int LongStreams(int64_t k) { return k <= 1024 ? 8 : 4; }
  static constexpr int DirectBlocks(int64_t k) { return 4 * LongStreams(k); }
  static constexpr int DirectVecs(int rows) { return rows == 1 ? 8 : ZmmTileBlocks(rows); }
};

// DotBf16::Dot(acc, a, b), per lane: acc = fma(a.hi, b.hi, acc); acc = fma(a.lo, b.lo, acc). Both
// chains of eight outputs lie side by side in a vector (pair_chains.h).
template <class DotBf16>
struct Bf16Pairs : ZmmRegisters, DotBf16 {
  static constexpr int kPasses = 1;
  static constexpr int kSteps = 8;
  // 18 chains, 9 accumulators and 3 operands in registers: a stored vector costs Zen 4 half a
  // product and, where stores follow each other, more than two (6 rows by 4 vectors, whose
  // accumulators are stored once a group, stop at 94 % of one product a cycle, from L1; this tile
  // does not).
  static constexpr int kTileRows = 9, kTileVecs = 2;
  static constexpr int64_t kBlockGroups = 8;  // 8 KiB of words
  static constexpr int64_t PrefetchBytes(int /*streams*/) { return 0; }
  static constexpr int kDirectRows = 48, kDirectTileRows = 9, kDirectTilesRows = 9;
  static constexpr int DirectBlocks(int64_t /*k*/) { return 4; }
  static constexpr int kPrefetchRows = 5;
  static constexpr int DirectVecs(int rows) { return rows <= 2 ? 8 : rows <= 4 ? 4 : 2; }
  static constexpr int VecsAtOnce(int rows) { return DirectVecs(rows); }

  static Vec Product(Vec a, Vec b) { return DotBf16::Dot(Zero(), a, b); }
  static Vec Weights(const bf16* block, int64_t step, int v, int /*pass*/) {
    const __m512i k01 = _mm512_load_si512(block + step * 64);
    const __m512i k23 = _mm512_load_si512(block + step * 64 + 32);
    return v == 0 ? PairWords<0>(k01, k23) : PairWords<1>(k01, k23);
  }
  static Vec Broadcast(const uint32_t* from) { return BroadcastPair(from); }
  static Vec AddChains(Vec lower, Vec upper) { return AddPairChains(lower, upper); }
  static void PackGroup(const bf16* x, uint32_t* words, uint32_t* /*second*/) {
    const __m512i order = _mm512_broadcast_i32x4(PairOrder());
    _mm512_storeu_si512(words, _mm512_shuffle_epi8(_mm512_loadu_si512(x), order));
  }
};

}  // namespace
}  // namespace baton
