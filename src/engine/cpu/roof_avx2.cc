#include <immintrin.h>

#include "engine/cpu/roof_kernels.h"

namespace baton {
namespace {

constexpr int kChains = 12;

__m256 Fma(__m256 acc, __m256 a, __m256 b) { return _mm256_fmadd_ps(a, b, acc); }

// Pairs of 16-bit products: what int8 weights take where there is no VNNI.
__m256 DotIntegers(__m256 acc, __m256 a, __m256 b) {
  const __m256i products = _mm256_madd_epi16(_mm256_castps_si256(a), _mm256_castps_si256(b));
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(acc), products));
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

template <int kStreams, int kPrefetchBytes>
uint64_t Read(const void* from, int64_t bytes) {
  constexpr int64_t kVectors = kStreams < 16 ? 16 / kStreams : 2;  // of 32 bytes, stream and turn
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

constexpr RoofKernel kRoofAvx2 = {kChains * 8 * 2, Run<Fma>};
constexpr RoofKernel kRoofIntegerAvx2 = {kChains * 8 * 4, Run<DotIntegers>};

uint64_t (*const kRead[kReadWays])(const void*, int64_t) = {Read<1, 0>, Read<4, 0>, Read<16, 0>,
                                                            Read<4, 2048>, Read<16, 1024>};

}  // namespace baton
