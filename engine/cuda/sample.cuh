// The kernels of sample.h. Operations and their order are those of engine/sampling/sampler.cc,
// sampler_rows.cc and row_logprobs.cc, and of engine/numerics/{exp2,fold,log,philox}.h, which stand
// here once more as device code. Device code: nothing of CUDA's runtime, so that tests can run it
// on an emulated block of threads.
//
// Three kernels, since everything waits for the greatest logit, and the draw for all weights: each
// of the first two reads the logits once, in chunks; the last one has a block per row.
#pragma once

#include <cstdint>

#include "engine/cuda/flushed_float.cuh"
#include "engine/cuda/gemm_end.cuh"
#include "engine/cuda/lane_fold.cuh"
#include "engine/cuda/sample_row.h"
#include "engine/cuda/warp.cuh"

namespace baton {
namespace {

constexpr int kSampleThreads = 256;
constexpr int kLogitsOfThread = 16;
constexpr int kChunk = kSampleThreads * kLogitsOfThread;  // logits of a block
constexpr int kWeightBlock = 256;  // tokens whose weights are summed in fp32: a half warp has them
constexpr int kMaxChunks = 64, kMaxWeightBlocks = kMaxChunks * kChunk / kWeightBlock;

constexpr double kLog2E = 1.4426950408889634;
constexpr float kLargestFloat = 0x1.fffffep127f;

struct SampleWork {
  const float* logits;
  int n_rows, vocab;
  const SampleRowArguments* rows;  // perhaps in memory of the host: read once
  uint8_t* scratch;                // (n_rows, row_bytes): arguments, keys of chunks, sums of blocks
  int64_t row_bytes;               // of the scratch
  int n_chunks, n_weight_blocks;
  uint64_t* results;  // SampleRowResult at the places that rows name
  int32_t* sampled;   // null: not wanted
};

__device__ __forceinline__ float MinusInfinity() { return __builtin_bit_cast(float, 0xff800000u); }

// NaN counts as -inf and +inf as the largest finite number.
__device__ __forceinline__ float SaneOf(float logit) {
  return LesserOf(GreaterOf(logit, MinusInfinity()), kLargestFloat);
}

// ---- the greatest logit ----

// A logit and its token as one number, which is greater for the greater logit, and for the lower id
// of equal ones. 0: there is none.
using TopKey = uint64_t;

__device__ __forceinline__ TopKey KeyOf(float sane, int token) {
  // Denormals and -0 are +0.
  const uint32_t bits = __builtin_bit_cast(uint32_t, FlushedAdd(sane, 0.0f));
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ __forceinline__ float ValueOf(TopKey key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __builtin_bit_cast(float, ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}
__device__ __forceinline__ int TokenOf(TopKey key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}

__device__ __forceinline__ TopKey GreaterKey(TopKey a, TopKey b) { return a > b ? a : b; }

__device__ __forceinline__ TopKey GreatestOfWarp(TopKey key) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) key = GreaterKey(key, FromLaneAcross(key, bits));
  return key;
}

// The greatest key of a block of threads; all of them get it.
__device__ __forceinline__ TopKey GreatestOfBlock(TopKey key) {
  __shared__ TopKey shared_keys[kSampleThreads / 32];
  key = GreatestOfWarp(key);
  __syncthreads();  // keys of an earlier call have been read
  if (threadIdx.x % 32 == 0) shared_keys[threadIdx.x / 32] = key;
  __syncthreads();
#pragma unroll
  for (const TopKey each : shared_keys) key = GreaterKey(key, each);
  return key;
}

// The scratch of a row.
struct RowScratch {
  SampleRowArguments* arguments;
  TopKey* keys;  // (n_chunks)
  float* sums;   // (2, n_weight_blocks)
};
__device__ __forceinline__ RowScratch ScratchOf(const SampleWork& work, int row) {
  uint8_t* const memory = work.scratch + row * work.row_bytes;
  TopKey* const keys = reinterpret_cast<TopKey*>(memory + sizeof(SampleRowArguments));
  return {reinterpret_cast<SampleRowArguments*>(memory), keys,
          reinterpret_cast<float*>(keys + work.n_chunks)};
}

__global__ void __launch_bounds__(kSampleThreads) SampleTopKernel(SampleWork work) {
  const int row = blockIdx.y, first = blockIdx.x * kChunk + threadIdx.x;
  const RowScratch scratch = ScratchOf(work, row);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scratch.arguments = work.rows[row];
  const float* const logits = work.logits + int64_t{row} * work.vocab;
  float values[kLogitsOfThread];
#pragma unroll
  for (int i = 0; i < kLogitsOfThread; ++i) {
    const int token = first + i * kSampleThreads;
    values[i] = token < work.vocab ? SaneOf(logits[token]) : MinusInfinity();
  }
  float top = values[0];
  int token = first;
#pragma unroll
  for (int i = 1; i < kLogitsOfThread; ++i) {
    if (values[i] > top) {
      top = values[i];
      token = first + i * kSampleThreads;
    }
  }
  const TopKey key = GreatestOfBlock(first < work.vocab ? KeyOf(top, token) : 0);
  if (threadIdx.x == 0) scratch.keys[blockIdx.x] = key;
}

// ---- weights ----

// What all tokens of a row have in common.
struct RowFactors {
  TopKey top;
  TopKey drawable_top;  // of the ids that may be drawn
  float factor;         // log2 e / temperature
  bool is_drawn;        // else it is the greatest logit
  bool is_separate;     // the weights of the draw are not those of the log-probability
};

// All threads of a block ask together.
__device__ __forceinline__ RowFactors FactorsOf(const SampleWork& work, const float* logits,
                                                const RowScratch& scratch) {
  const SampleRowArguments& arguments = *scratch.arguments;
  RowFactors factors = {};
#pragma unroll
  for (int i = 0; i < kMaxChunks; i += 32) {
    const int chunk = i + static_cast<int>(threadIdx.x % 32);
    if (chunk < work.n_chunks) factors.top = GreaterKey(factors.top, scratch.keys[chunk]);
  }
  factors.top = factors.drawable_top = GreatestOfWarp(factors.top);
  // Hardly ever is the greatest logit that of an id without a token: each block looks for itself.
  if (TokenOf(factors.top) >= arguments.drawable) {
    TopKey key = 0;
    for (int i = threadIdx.x; i < arguments.drawable; i += kSampleThreads)
      key = GreaterKey(key, KeyOf(SaneOf(logits[i]), i));
    factors.drawable_top = GreatestOfBlock(key);
  }
  const float temperature = FlushedAdd(arguments.temperature, 0.0f);
  factors.is_drawn = temperature > 0 && ValueOf(factors.drawable_top) > MinusInfinity();
  if (factors.is_drawn) {
    const double exact = kLog2E / static_cast<double>(temperature);
    factors.factor = FlushedAdd(static_cast<float>(exact < 1e30 ? exact : 1e30), 0.0f);
  }
  factors.is_separate = factors.is_drawn && (factors.factor != static_cast<float>(kLog2E) ||
                                             arguments.drawable < work.vocab);
  return factors;
}

// 2^((logit - top) * factor).
__device__ __forceinline__ float WeightOf(float logit, float top, float factor) {
  const float difference = FlushedMul(FlushedSub(SaneOf(logit), top), factor);
  const float x = LesserOf(128.0f, GreaterOf(-127.0f, difference));
  const float shifted = FlushedAdd(x, 0x1.8p23f);
  const float f = FlushedSub(x, FlushedSub(shifted, 0x1.8p23f));
  float p = 0x1.5bba14p-10f;
  p = FlushedFma(p, f, 0x1.3cea88p-7f);
  p = FlushedFma(p, f, 0x1.c6b752p-5f);
  p = FlushedFma(p, f, 0x1.ebf9bcp-3f);
  p = FlushedFma(p, f, 0x1.62e42ap-1f);
  p = FlushedFma(p, f, 1.0f);
  const uint32_t bits = __builtin_bit_cast(uint32_t, p);
  const uint32_t power = __builtin_bit_cast(uint32_t, shifted) << 23;
  return x < -126.0f ? 0.0f : __builtin_bit_cast(float, bits + power);
}

__global__ void __launch_bounds__(kSampleThreads) SampleWeighKernel(SampleWork work) {
  const int row = blockIdx.y, lane = threadIdx.x % 16;
  const int block = blockIdx.x * (kChunk / kWeightBlock) + static_cast<int>(threadIdx.x / 16);
  const RowScratch scratch = ScratchOf(work, row);
  const int drawable = scratch.arguments->drawable;
  if (drawable == 0) return;
  const float* const logits = work.logits + int64_t{row} * work.vocab;
  const int first = block * kWeightBlock + lane;
  float values[kWeightBlock / 16];
#pragma unroll
  for (int i = 0; i < kWeightBlock / 16; ++i)
    values[i] = first + 16 * i < work.vocab ? logits[first + 16 * i] : MinusInfinity();
  const RowFactors factors = FactorsOf(work, logits, scratch);
  const auto sum_below = [&](int end, float top, float factor) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWeightBlock / 16; ++i) {
      const float value = first + 16 * i < end ? values[i] : MinusInfinity();
      sum = FlushedAdd(sum, WeightOf(value, top, factor));
    }
    return FoldLanes(sum);
  };
  const float sum = sum_below(work.vocab, ValueOf(factors.top), static_cast<float>(kLog2E));
  float drawable_sum = 0;
  if (factors.is_separate)
    drawable_sum = sum_below(drawable, ValueOf(factors.drawable_top), factors.factor);
  if (lane != 0 || block >= work.n_weight_blocks) return;
  scratch.sums[block] = sum;
  if (factors.is_separate) scratch.sums[work.n_weight_blocks + block] = drawable_sum;
}

// ---- the token ----

__device__ __forceinline__ double NaturalLogOf(double x) {
  constexpr double kSqrt2 = 1.4142135623730951, kLn2 = 0.6931471805599453;
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m >= kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double series = 1.0 / 17;
#pragma unroll
  for (int k = 15; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return 2.0 * s * series + exponent * kLn2;
}

// UniformAt(seed, position, 0).
__device__ __forceinline__ double UniformOf(uint64_t seed, int64_t position) {
  const uint64_t p = static_cast<uint64_t>(position);
  uint32_t counter[4] = {static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<uint32_t>(b);
    counter[2] = static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<uint32_t>(a);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t random = uint64_t{counter[0]} << 32 | counter[1];
  return static_cast<double>(random >> 11) * 0x1p-53;
}

// Makes sums[i] what `start` and the first i + 1 numbers give, added in ascending order. Returns
// the last one.
__device__ __forceinline__ double AddUp(const double* numbers, int n, double start, double* sums) {
  constexpr int kBatch = 16;
  double sum = start;
  int i = 0;
#pragma unroll 1
  for (; i + kBatch <= n; i += kBatch) {
    double batch[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) batch[j] = numbers[i + j];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) sums[i + j] = sum = sum + batch[j];
  }
#pragma unroll 1
  for (; i < n; ++i) sums[i] = sum = sum + numbers[i];
  return sum;
}

// Returns how many of n ascending numbers are not above `target`.
__device__ __forceinline__ int CountNotAbove(const double* numbers, int n, double target) {
  int low = 0;
  for (int high = n; low < high;) {
    const int middle = (low + high) / 2;
    if (numbers[middle] <= target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kSampleThreads) SampleFinishKernel(SampleWork work) {
  __shared__ double shared_sums[2][kMaxWeightBlocks];
  __shared__ double shared_totals[2];
  __shared__ double shared_weights[kWeightBlock], shared_walk[kWeightBlock];
  __shared__ int shared_token;
  static_assert(kWeightBlock <= kSampleThreads);
  const int row = blockIdx.x, thread = threadIdx.x;
  const RowScratch scratch = ScratchOf(work, row);
  const SampleRowArguments& arguments = *scratch.arguments;
  const int drawable = arguments.drawable;
  if (drawable == 0) {
    if (thread == 0 && work.sampled != nullptr) work.sampled[row] = -1;
    return;
  }
  const float* const logits = work.logits + int64_t{row} * work.vocab;
  const float* const sums = scratch.sums;
  const RowFactors factors = FactorsOf(work, logits, scratch);
  const float top = ValueOf(factors.top);
  const int draw = factors.is_separate ? 1 : 0;  // whose sums are those of the draw
  const int n_drawable = (drawable + kWeightBlock - 1) / kWeightBlock;
  for (int i = thread; i < work.n_weight_blocks; i += kSampleThreads) {
    shared_sums[0][i] = static_cast<double>(sums[i]);
    if (draw != 0) shared_sums[1][i] = static_cast<double>(sums[work.n_weight_blocks + i]);
  }
  __syncthreads();
  // A warp for each of the sums, which are added one by one.
  if (thread == 0)
    shared_totals[0] = AddUp(shared_sums[0], work.n_weight_blocks, 0, shared_sums[0]);
  if (thread == 32 && draw != 0)
    shared_totals[1] = AddUp(shared_sums[1], n_drawable, 0, shared_sums[1]);
  __syncthreads();

  int token = TokenOf(factors.drawable_top);
  if (factors.is_drawn) {
    const double target = UniformOf(arguments.seed, arguments.position) * shared_totals[draw];
    int block = CountNotAbove(shared_sums[draw], n_drawable - 1, target);
    const double below = block == 0 ? 0.0 : shared_sums[draw][block - 1];
    const float drawable_top = ValueOf(factors.drawable_top);
    for (bool is_first = true;; is_first = false, --block) {
      const int first = block * kWeightBlock;
      const int n = drawable - first < kWeightBlock ? drawable - first : kWeightBlock;
      if (thread < kWeightBlock) {
        shared_weights[thread] = thread < n
                                     ? static_cast<double>(WeightOf(logits[first + thread],
                                                                    drawable_top, factors.factor))
                                     : 0.0;
      }
      __syncthreads();
      if (thread == 0) {
        int found = -1;
        if (is_first) {
          AddUp(shared_weights, n, below, shared_walk);
          const int n_passed = CountNotAbove(shared_walk, n, target);
          if (n_passed < n) found = n_passed;
        }
        // Rounding may carry the walk past the block's end: the last token with any weight.
        for (int i = n - 1; found < 0 && i >= 0; --i)
          if (shared_weights[i] != 0) found = i;
        shared_token = found < 0 ? -1 : first + found;
      }
      __syncthreads();
      token = shared_token;
      if (token >= 0) break;
    }
  }
  if (thread != 0) return;
  float logprob = MinusInfinity();
  const float logit = logits[token];
  if (top > MinusInfinity() && logit == logit) {
    const double gap = static_cast<double>(FlushedAdd(LesserOf(logit, kLargestFloat), 0.0f)) -
                       static_cast<double>(top);
    logprob = static_cast<float>(gap - NaturalLogOf(shared_totals[0]));
  }
  *reinterpret_cast<SampleRowResult*>(work.results + arguments.result) = {0, token, logprob, 0, 0};
  if (work.sampled != nullptr) work.sampled[row] = token;
}

}  // namespace
}  // namespace baton
