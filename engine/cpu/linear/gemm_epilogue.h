// Converts accumulators to outputs: bias, rounding, residual, activation (docs/NUMERICS.md N1, N2,
// N3, N6), sixteen outputs of one row at a time. Shared by all kernel units, one copy per unit.
#pragma once

#include <cstdint>

#include "engine/cpu/linear/linear_job.h"
#include "engine/numerics/gelu.h"
#include "engine/numerics/lanes.h"

namespace baton {
namespace {

// Reads 16 values, of which only `valid` exist.
inline Lanes LoadSome(const float* from, int64_t valid) {
  if (valid >= 16) return Load<Lanes>(from);
  alignas(64) float padded[16] = {};
  for (int64_t i = 0; i < valid; ++i) padded[i] = from[i];
  return Load<Lanes>(padded);
}
inline Lanes LoadSomeBf16(const bf16* from, int64_t valid) {
  if (valid >= 16) return LoadBf16<Lanes>(from);
  alignas(64) bf16 padded[16] = {};
  for (int64_t i = 0; i < valid; ++i) padded[i] = from[i];
  return LoadBf16<Lanes>(padded);
}
inline void StoreSome(float* to, Lanes x, int64_t valid) {
  if (valid >= 16) return Store(to, x);
  alignas(64) float padded[16];
  Store(padded, x);
  for (int64_t i = 0; i < valid; ++i) to[i] = padded[i];
}
inline void StoreSomeBf16(bf16* to, Lanes x, int64_t valid) {
  if (valid >= 16) return StoreBf16(to, x);
  alignas(64) bf16 padded[16];
  StoreBf16(padded, x);
  for (int64_t i = 0; i < valid; ++i) to[i] = padded[i];
}

// Adds the bias to a block's sums.
inline Lanes AddBias(const LinearJob& job, int64_t block, Lanes sum) {
  if (job.bias == nullptr) return sum;
  return Add(sum, LoadSome(job.bias + block * 16, job.n - block * 16));
}
inline Lanes BiasedSum(const LinearJob& job, int64_t block, const float* acc) {
  return AddBias(job, block, Load<Lanes>(acc));
}

// Sums to rounded outputs for kBf16 and kGelu; also used inside gated layers.
template <Epilogue kEpilogue>
inline Lanes PlainOutput(Lanes sum) {
  return kEpilogue == Epilogue::kGelu ? Gelu(RoundBf16(sum)) : sum;
}
template <Epilogue kEpilogue>
inline Lanes GatedOutput(Lanes gate_sum, Lanes up_sum) {
  const Lanes gate = RoundBf16(gate_sum), up = RoundBf16(up_sum);
  return Mul(kEpilogue == Epilogue::kSwiGlu ? Silu(gate) : GeluTanh(gate), up);
}

// Writes outputs [16 * block, 16 * block + 16) of a row from `sum`, the row's sums.
template <Epilogue kEpilogue>
inline void FinishBlock(const LinearJob& job, int64_t row, int64_t block, Lanes sum) {
  const int64_t column = block * 16, valid = job.n - column;
  if constexpr (kEpilogue == Epilogue::kFp32) {
    StoreSome(job.y_fp32 + row * job.y_stride + column, CanonicalizeNan(sum), valid);
    return;
  }
  bf16* const y = job.y + row * job.y_stride + column;
  if constexpr (kEpilogue == Epilogue::kBf16 || kEpilogue == Epilogue::kGelu) {
    StoreSomeBf16(y, PlainOutput<kEpilogue>(sum), valid);
  }
  if constexpr (kEpilogue == Epilogue::kResidualAdd) {
    const Lanes residual = LoadSomeBf16(job.residual + row * job.residual_stride + column, valid);
    StoreSomeBf16(y, Add(residual, RoundBf16(sum)), valid);
  }
}

template <Epilogue kEpilogue>
inline void FinishBlocks(const LinearJob& job, int64_t row, int64_t first, int64_t blocks,
                         const float* acc, int64_t acc_stride) {
  for (int64_t b = 0; b < blocks; ++b, acc += acc_stride) {
    FinishBlock<kEpilogue>(job, row, first + b, BiasedSum(job, first + b, acc));
  }
}

// Writes gated outputs; blocks come in pairs, gate and up.
template <Epilogue kEpilogue>
inline void FinishGatedBlocks(const LinearJob& job, int64_t row, int64_t first, int64_t blocks,
                              const float* acc, int64_t acc_stride) {
  bf16* y = job.y + row * job.y_stride + first * 8;
  for (int64_t b = first; b < first + blocks; b += 2, acc += 2 * acc_stride, y += 16) {
    StoreBf16(
        y, GatedOutput<kEpilogue>(BiasedSum(job, b, acc), BiasedSum(job, b + 1, acc + acc_stride)));
  }
}

// Prefetches the lines that FinishRow will write for rows [row, row + rows), before the sums are
// computed: rows of y lie far apart and are rarely in a cache, and a store that waits for memory
// holds up all stores after it.
inline void PrefetchOutputs(const LinearJob& job, int64_t row, int64_t rows, int64_t first,
                            int64_t blocks) {
  const bool is_fp32 = job.epilogue == Epilogue::kFp32;
  const int64_t block_bytes = is_fp32 ? 64 : IsGated(job.epilogue) ? 16 : 32;
  const char* y = is_fp32 ? reinterpret_cast<const char*>(job.y_fp32 + row * job.y_stride)
                          : reinterpret_cast<const char*>(job.y + row * job.y_stride);
  for (; rows > 0; --rows, y += job.y_stride * (is_fp32 ? 4 : 2)) {
    const char* const end = y + (first + blocks) * block_bytes;
    for (const char* line = y + first * block_bytes; line < end; line += 64) {
      __asm__ volatile("prefetchw %0" : : "m"(*line));
    }
  }
}

// Writes the outputs of blocks [first, first + blocks) of a row from their accumulators, acc_stride
// floats per block.
[[maybe_unused]] void FinishRow(const LinearJob& job, int64_t row, int64_t first, int64_t blocks,
                                const float* acc, int64_t acc_stride) {
  switch (job.epilogue) {
    case Epilogue::kBf16:
      return FinishBlocks<Epilogue::kBf16>(job, row, first, blocks, acc, acc_stride);
    case Epilogue::kFp32:
      return FinishBlocks<Epilogue::kFp32>(job, row, first, blocks, acc, acc_stride);
    case Epilogue::kResidualAdd:
      return FinishBlocks<Epilogue::kResidualAdd>(job, row, first, blocks, acc, acc_stride);
    case Epilogue::kGelu:
      return FinishBlocks<Epilogue::kGelu>(job, row, first, blocks, acc, acc_stride);
    case Epilogue::kSwiGlu:
      return FinishGatedBlocks<Epilogue::kSwiGlu>(job, row, first, blocks, acc, acc_stride);
    case Epilogue::kGeGlu:
      return FinishGatedBlocks<Epilogue::kGeGlu>(job, row, first, blocks, acc, acc_stride);
  }
}

}  // namespace
}  // namespace baton
