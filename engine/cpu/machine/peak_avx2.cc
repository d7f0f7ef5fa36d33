#include <immintrin.h>

#include "engine/cpu/machine/peak_kernels.h"

namespace baton {
namespace {

constexpr int kChains = 12;

__m256 Fma(__m256 acc, __m256 a, __m256 b) { return _mm256_fmadd_ps(a, b, acc); }

// Inline assembly for integer instructions: from intrinsics the compiler would multiply equal
// operands only once, and build trees of sums.
inline __m256i Madd(__m256i a, __m256i b) {
  __m256i products;
  __asm__ volatile("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
  return products;
}
inline __m256i Maddubs(__m256i a, __m256i b) {
  __m256i products;
  __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
  return products;
}
inline __m256i AddInts(__m256i acc, __m256i x) {
  __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(x));
  return acc;
}
inline __m256i AddShorts(__m256i acc, __m256i x) {
  __asm__("vpaddw %1, %0, %0" : "+x"(acc) : "x"(x));
  return acc;
}

// Pairs of 16-bit products, the instruction for int8 weights without VNNI.
__m256 DotIntegers(__m256 acc, __m256 a, __m256 b) {
  const __m256i products = Madd(_mm256_castps_si256(a), _mm256_castps_si256(b));
  return _mm256_castsi256_ps(AddInts(_mm256_castps_si256(acc), products));
}

template <__m256 (*dot)(__m256 acc, __m256 a, __m256 b)>
float Run(const float* operands, int64_t iterations) {
  __m256 sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_load_ps(operands + 16 + 8 * i);
  const __m256 a = _mm256_load_ps(operands), b = _mm256_load_ps(operands + 8);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = dot(sums[i], a, b);
  }
  __m256 all = sums[0];
#pragma GCC unroll 12
  for (int i = 1; i < kChains; ++i) all = _mm256_add_ps(all, sums[i]);
  return all[0] + all[7];
}

// Eight pairs of 8-bit products added as shorts, then widened: the instructions for int4 weights
// (V::Widen of gemm_integer.h).
constexpr int kShortChains = 6, kStepQuads = 8;
float RunShorts(const float* operands, int64_t iterations) {
  const __m256i* const from = reinterpret_cast<const __m256i*>(operands);
  __m256i sums[kShortChains];
#pragma GCC unroll 6
  for (int i = 0; i < kShortChains; ++i) sums[i] = _mm256_load_si256(from + 2 + i);
  const __m256i a = _mm256_load_si256(from), b = _mm256_load_si256(from + 1);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    __m256i shorts[kShortChains];
#pragma GCC unroll 6
    for (int i = 0; i < kShortChains; ++i) shorts[i] = Maddubs(a, b);
#pragma GCC unroll 8
    for (int quad = 1; quad < kStepQuads; ++quad) {
#pragma GCC unroll 6
      for (int i = 0; i < kShortChains; ++i) shorts[i] = AddShorts(shorts[i], Maddubs(a, b));
    }
#pragma GCC unroll 6
    for (int i = 0; i < kShortChains; ++i) sums[i] = AddInts(sums[i], Madd(shorts[i], b));
  }
  __m256i all = sums[0];
#pragma GCC unroll 6
  for (int i = 1; i < kShortChains; ++i) all = _mm256_add_epi32(all, sums[i]);
  return static_cast<float>(all[0] + all[3]);
}

template <int kStreams, int kPrefetchBytes>
uint64_t Read(const void* from, int64_t bytes) {
  // Vectors of 32 bytes per stream and turn.
  constexpr int64_t kVectors = kStreams < 16 ? 16 / kStreams : 2;
  const int64_t stride = bytes / 32 / kStreams;
  const __m256i* vectors = static_cast<const __m256i*>(from);
  __m256i sums[8] = {};
  for (int64_t i = 0; i < stride; i += kVectors) {
#pragma GCC unroll 16
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      const __m256i* at = vectors + stream * stride + i;
#pragma GCC unroll 16
      for (int64_t j = 0; j < kVectors; ++j) {
        if (kPrefetchBytes > 0 && j % 2 == 0) {
          _mm_prefetch(reinterpret_cast<const char*>(at + j) + kPrefetchBytes, _MM_HINT_T0);
        }
        __m256i& sum = sums[(stream * kVectors + j) % 8];
        sum = _mm256_xor_si256(sum, _mm256_load_si256(at + j));
      }
    }
  }
  __m256i all = sums[0];
  for (int j = 1; j < 8; ++j) all = _mm256_xor_si256(all, sums[j]);
  return static_cast<uint64_t>(all[0] ^ all[1] ^ all[2] ^ all[3]);
}

}  // namespace

constexpr PeakKernel kPeakAvx2 = {kChains * 8 * 2, Run<Fma>};
constexpr PeakKernel kPeakIntegerAvx2 = {kChains * 8 * 4, Run<DotIntegers>};
constexpr PeakKernel kPeakInt4Avx2 = {kShortChains * kStepQuads * 32 * 2, RunShorts};

uint64_t (*const kRead[kReadWays])(const void*, int64_t) = {Read<1, 0>, Read<4, 0>, Read<16, 0>,
                                                            Read<4, 2048>, Read<16, 1024>};

}  // namespace baton
