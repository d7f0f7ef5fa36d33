// The kernels of sample.h. Operations and their order are those of engine/sampling/sampler.cc,
// sampler_rows.cc and row_logprobs.cc, and of engine/numerics/{exp2,fold,log,philox}.h, which stand
// here once more as device code. Device code: nothing of CUDA's runtime, so that tests can run it
// on an emulated block of threads.
//
// Two kernels, since all weights wait for the greatest logit: each reads the logits once, in
// chunks. The last block of a row to have its weights chooses the token.
#pragma once

#include <cstdint>

#include "engine/cuda/block_count.cuh"
#include "engine/cuda/dependent_launch.cuh"
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
  uint8_t* scratch;                // (n_rows, row_bytes): RowScratch
  int64_t row_bytes;               // of the scratch
  int n_chunks, n_weight_blocks;
  uint64_t* results;  // SampleRowResult at the places that rows name
  int32_t* sampled;   // null: not wanted
};

__device__ __forceinline__ float MinusInfinity() { return __builtin_bit_cast(float, 0xff800000u); }

// NaN counts as -inf and +inf as the largest finite number; denormals are left.
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

// The scratch of a row, and the bytes of what has a fixed place in it.
constexpr int kScratchHead = sizeof(SampleRowArguments) + 16;
struct RowScratch {
  SampleRowArguments* arguments;
  uint32_t* n_done;  // blocks that have their weights
  TopKey* keys;      // (n_chunks)
  float* sums;       // (2, n_weight_blocks)
};
__device__ __forceinline__ RowScratch ScratchOf(const SampleWork& work, int row) {
  uint8_t* const memory = work.scratch + row * work.row_bytes;
  TopKey* const keys = reinterpret_cast<TopKey*>(memory + kScratchHead);
  return {reinterpret_cast<SampleRowArguments*>(memory),
          reinterpret_cast<uint32_t*>(memory + sizeof(SampleRowArguments)), keys,
          reinterpret_cast<float*>(keys + work.n_chunks)};
}

__global__ void __launch_bounds__(kSampleThreads) SampleTopKernel(SampleWork work) {
  LetNextKernelBegin();
  const int row = blockIdx.y, first = blockIdx.x * kChunk + threadIdx.x;
  const bool has_arguments = blockIdx.x == 0 && threadIdx.x == 0;
  SampleRowArguments arguments = {};
  if (has_arguments) arguments = work.rows[row];  // on its way meanwhile: no kernel writes it
  WaitForKernelBefore();
  const float* const logits = work.logits + int64_t{row} * work.vocab;
  float values[kLogitsOfThread];
#pragma unroll
  for (int i = 0; i < kLogitsOfThread; ++i) {
    const int token = first + i * kSampleThreads;
    values[i] = token < work.vocab ? logits[token] : MinusInfinity();
  }
  // Denormals are equal to zeros of both signs, so they become +0 before anything is compared.
#pragma unroll
  for (float& value : values) value = FlushedAdd(SaneOf(value), 0.0f);
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
  const RowScratch scratch = ScratchOf(work, row);
  if (threadIdx.x == 0) scratch.keys[blockIdx.x] = key;
  if (has_arguments) {
    *scratch.arguments = arguments;
    *scratch.n_done = 0;
  }
}

// ---- weights ----

// Holds what all tokens of a row have in common.
struct RowFactors {
  TopKey top;
  TopKey drawable_top;  // of the ids that may be drawn
  float factor;         // log2 e / temperature
  bool is_drawn;        // else it is the greatest logit
  bool is_separate;     // the weights of the draw are not those of the log-probability
};

// All threads of a block ask together.
__device__ __forceinline__ RowFactors FactorsOf(const SampleWork& work, const float* logits,
                                                const RowScratch& scratch,
                                                const SampleRowArguments& arguments) {
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

// Makes numbers[i] the sum of the first i + 1 numbers, added in ascending order. Returns the last
// one. One thread.
__device__ __forceinline__ double AddUp(double* numbers, int n) {
  constexpr int kBatch = 4;
  double sum = 0, ahead[kBatch] = {};
#pragma unroll
  for (int j = 0; j < kBatch; ++j)
    if (j < n) ahead[j] = numbers[j];
#pragma unroll 1
  for (int i = 0; i < n; i += kBatch) {
    double batch[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      batch[j] = ahead[j];
      ahead[j] = i + kBatch + j < n ? numbers[i + kBatch + j] : 0.0;
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      sum = sum + batch[j];
      if (i + j < n) numbers[i + j] = sum;
    }
  }
  return sum;
}

// A lane's share of n numbers, in order: an odd number of them, so that lanes hit all banks.
struct LaneShare {
  int begin, end;
};
__device__ __forceinline__ LaneShare ShareOf(int n) {
  const int lane = threadIdx.x % 32, n_own = (n + 31) / 32 | 1, begin = lane * n_own;
  return {begin, begin + n_own < n ? begin + n_own : n};
}

// Returns the sum of what lower lanes have; `sum` becomes that of all lanes.
__device__ __forceinline__ double SumOfLowerLanes(double& sum) {
  double below = 0;
#pragma unroll
  for (int bits = 1; bits < 32; bits *= 2) {
    const double other = FromLaneAcross(sum, bits);
    if ((threadIdx.x & bits) != 0) below += other;
    sum += other;
  }
  return below;
}

// How far above the exponent of a number that of the sum may be, so that no addition rounds: a
// number is a multiple of 2^(exponent - 23), since it is an fp32, and fp64 holds 2^53 of them.
constexpr int kExactExponents = 28;

// As AddUp, of numbers that are not negative and that fp32 holds, by a warp; lane 0 gets the sum.
// Where no addition rounds, their order is of no matter, and all lanes add.
__device__ __forceinline__ double AddUpInWarp(double* numbers, int n) {
  constexpr uint32_t kNone = 0x7ff;  // greater than exponents
  const auto exponent_of = [](double x) {
    return static_cast<uint32_t>(__builtin_bit_cast(uint64_t, x) >> 52);
  };
  const LaneShare share = ShareOf(n);
  double total = 0;
  uint32_t min_exponent = kNone;
#pragma unroll 4
  for (int i = share.begin; i < share.end; ++i) {
    const double number = numbers[i];
    const uint32_t exponent = number != 0 ? exponent_of(number) : kNone;
    min_exponent = exponent < min_exponent ? exponent : min_exponent;
    total += number;
  }
  double sum = SumOfLowerLanes(total);
#pragma unroll
  for (int bits = 1; bits < 32; bits *= 2) {
    const uint32_t theirs = FromLaneAcross(min_exponent, bits);
    min_exponent = theirs < min_exponent ? theirs : min_exponent;
  }
  if (exponent_of(total) > min_exponent + kExactExponents)
    return threadIdx.x % 32 == 0 ? AddUp(numbers, n) : 0;
  constexpr int kBatch = 4;
#pragma unroll 1
  for (int i = share.begin; i < share.end; i += kBatch) {
    double batch[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) batch[j] = i + j < share.end ? numbers[i + j] : 0.0;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      sum += batch[j];
      if (i + j < share.end) numbers[i + j] = sum;
    }
  }
  return total;
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

// Returns how many of the sums of start and the first i + 1 numbers, added in ascending order, are
// not above `target`. One thread.
__device__ __forceinline__ int Walk(const double* numbers, int n, double start, double target) {
  int i = 0;
  for (double sum = start; i < n; ++i) {
    sum = sum + numbers[i];
    if (sum > target) break;
  }
  return i;
}

// As Walk, by a warp; -1: a sum is so near the target that rounding may decide. Lanes add in
// another order; neither order is off by more than 2^-44 of the last sum, which stays below
// `bound`, since each has at most 2^9 additions of 2^-53.
__device__ __forceinline__ int WalkInWarp(const double* numbers, int n, double start, double target,
                                          double bound) {
  const LaneShare share = ShareOf(n);
  double own = 0;
  for (int i = share.begin; i < share.end; ++i) own += numbers[i];
  double sum = start + SumOfLowerLanes(own);
  const double near = bound * 0x1p-42;
  uint32_t count = 0;
  for (int i = share.begin; i < share.end; ++i) {
    sum += numbers[i];
    count += sum <= target ? 1u : 0u;
    if (sum - near <= target && target <= sum + near) count += 1u << 16;
  }
#pragma unroll
  for (int bits = 1; bits < 32; bits *= 2) count += FromLaneAcross(count, bits);
  return count >> 16 != 0 ? -1 : static_cast<int>(count);
}

// Chooses the token of a row by the sums of its blocks. All threads of a block take part.
__device__ __forceinline__ void Finish(const SampleWork& work, int row, const RowScratch& scratch,
                                       const SampleRowArguments& arguments,
                                       const RowFactors& factors) {
  __shared__ double shared_sums[2][kMaxWeightBlocks];
  __shared__ double shared_totals[2];
  __shared__ double shared_weights[kWeightBlock];
  __shared__ int shared_token;
  static_assert(kWeightBlock <= kSampleThreads);
  const int thread = threadIdx.x, drawable = arguments.drawable;
  const float* const logits = work.logits + int64_t{row} * work.vocab;
  const float* const sums = scratch.sums;
  const float top = ValueOf(factors.top);
  const int draw = factors.is_separate ? 1 : 0;  // whose sums are those of the draw
  const int n_drawable = (drawable + kWeightBlock - 1) / kWeightBlock;
  for (int i = thread; i < work.n_weight_blocks; i += kSampleThreads) {
    shared_sums[0][i] = static_cast<double>(sums[i]);
    if (draw != 0) shared_sums[1][i] = static_cast<double>(sums[work.n_weight_blocks + i]);
  }
  __syncthreads();
  // A warp for each of the sums.
  if (thread / 32 == 0) {
    const double total = AddUpInWarp(shared_sums[0], work.n_weight_blocks);
    if (thread == 0) shared_totals[0] = total;
  }
  if (thread / 32 == 1 && draw != 0) {
    const double total = AddUpInWarp(shared_sums[1], n_drawable);
    if (thread == 32) shared_totals[1] = total;
  }
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
      int n_passed = n;
      if (is_first && thread < 32) {
        n_passed = WalkInWarp(shared_weights, n, below, target, 2 * shared_totals[draw]);
        if (n_passed < 0 && thread == 0) n_passed = Walk(shared_weights, n, below, target);
      }
      if (thread == 0) {
        int found = n_passed < n ? n_passed : -1;
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

__global__ void __launch_bounds__(kSampleThreads, 4) SampleTokenKernel(SampleWork work) {
  const int row = blockIdx.y, lane = threadIdx.x % 16;
  const int block = blockIdx.x * (kChunk / kWeightBlock) + static_cast<int>(threadIdx.x / 16);
  LetNextKernelBegin();
  WaitForKernelBefore();
  const float* const logits = work.logits + int64_t{row} * work.vocab;
  const int first = block * kWeightBlock + lane;
  float values[kWeightBlock / 16];
#pragma unroll
  for (int i = 0; i < kWeightBlock / 16; ++i)
    values[i] = first + 16 * i < work.vocab ? logits[first + 16 * i] : MinusInfinity();
  const RowScratch scratch = ScratchOf(work, row);
  const SampleRowArguments arguments = *scratch.arguments;
  const int drawable = arguments.drawable;
  if (drawable == 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && work.sampled != nullptr) work.sampled[row] = -1;
    return;
  }
  const RowFactors factors = FactorsOf(work, logits, scratch, arguments);
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
  if (lane == 0 && block < work.n_weight_blocks) {
    scratch.sums[block] = sum;
    if (factors.is_separate) scratch.sums[work.n_weight_blocks + block] = drawable_sum;
  }
  __shared__ bool shared_is_last;
  __syncthreads();
  if (threadIdx.x == 0)
    shared_is_last = CountBlock(scratch.n_done) == static_cast<uint32_t>(work.n_chunks) - 1;
  __syncthreads();
  if (shared_is_last) Finish(work, row, scratch, arguments, factors);
}

}  // namespace
}  // namespace baton
