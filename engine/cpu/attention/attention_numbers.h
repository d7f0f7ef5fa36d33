// Numbers of an int8 page as tiles of bf16 for tdpbf16ps, 64 numbers at a time: their order by one
// permutation, their bits from two tables of bytes. For kernel units with AVX-512 VBMI.
//
// A tile row is sixteen words, a word two neighbours of the sum (two dims of a key, or a dim of two
// keys). Measured on an AMX Xeon, 128 keys of 64 dims in L2: 0.45 us of the tile's 1.25, where
// conversions by vpmovsxbd and vcvtdq2ps take 1.2.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace baton {
namespace {

class NumbersToTiles {
 public:
  NumbersToTiles() {
    alignas(64) uint8_t low[128], high[128], dims[64], keys[64];
    for (int i = 0; i < 128; ++i) {  // an fp32 of at most eight bits has its bf16 in its upper half
      const uint32_t bits = __builtin_bit_cast(uint32_t, static_cast<float>(i));
      low[i] = static_cast<uint8_t>(bits >> 16);
      high[i] = static_cast<uint8_t>(bits >> 24);
    }
    for (int i = 0; i < 64; ++i) {
      // Bytes of a lane of 16: four words of the first row, then four of the second.
      const int word = i / 16 * 4 + i % 8 / 2, row = i % 16 / 8, half = i % 2;
      dims[i] = static_cast<uint8_t>((2 * row + half) * 16 + word);
      keys[i] = static_cast<uint8_t>(half * 32 + row * 16 + word);
    }
    for (int part = 0; part < 2; ++part) {
      low_[part] = _mm512_load_si512(low + 64 * part);
      high_[part] = _mm512_load_si512(high + 64 * part);
    }
    of_dims_ = _mm512_load_si512(dims);
    of_keys_ = _mm512_load_si512(keys);
  }

  // numbers: (4 dims, 16 keys). Two rows of a tile of keys: dims 0 and 1, 2 and 3.
  inline __attribute__((always_inline)) void Keys(const int8_t* numbers, char* rows) const {
    const __m512i line = _mm512_loadu_si512(numbers);
    Widen(_mm512_permutexvar_epi8(of_dims_, line), rows, rows + 64);
  }
  // first, second: 32 dims of two keys. A row each of two tiles of values, next_tile bytes apart.
  inline __attribute__((always_inline)) void Values(const int8_t* first, const int8_t* second,
                                                    char* row, int64_t next_tile) const {
    const __m512i line = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first))),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second)), 1);
    Widen(_mm512_permutexvar_epi8(of_keys_, line), row, row + next_tile);
  }

 private:
  inline __attribute__((always_inline)) void Widen(__m512i numbers, char* first,
                                                   char* second) const {
    const __m512i size = _mm512_abs_epi8(numbers);
    const __m512i low = _mm512_permutex2var_epi8(low_[0], size, low_[1]);
    const __m512i high =
        _mm512_or_si512(_mm512_permutex2var_epi8(high_[0], size, high_[1]),
                        _mm512_and_si512(numbers, _mm512_set1_epi8(static_cast<char>(0x80))));
    _mm512_store_si512(first, _mm512_unpacklo_epi8(low, high));
    _mm512_store_si512(second, _mm512_unpackhi_epi8(low, high));
  }

  __m512i low_[2], high_[2];  // bytes of the bf16 of 0..63 and of 64..127
  __m512i of_dims_, of_keys_;
};

}  // namespace
}  // namespace baton
