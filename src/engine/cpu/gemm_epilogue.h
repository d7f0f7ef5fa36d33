// From accumulators to outputs: bias, rounding, residual, activation (rules N1, N2, N3, N6),
// sixteen outputs of one row at a time. Shared by all kernel units, one copy per unit.
#pragma once

#include <cstdint>

#include "engine/cpu/linear_job.h"
#include "engine/numerics/gelu.h"
#include "engine/numerics/lanes.h"

namespace baton {
namespace {

// Reads 16 values of which only `valid` exist.
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

inline Lanes BiasedSum(const LinearJob& job, int64_t block, const float* acc) {
  const Lanes sum = Load<Lanes>(acc);
  if (job.bias == nullptr) return sum;
  return Add(sum, LoadSome(job.bias + block * 16, job.n - block * 16));
}

// Writes outputs [16 * block, 16 * block + 16) of a row. acc: their accumulators; where they are
// gated `block` is the gate block and acc_up belongs to block + 1.
inline void FinishBlock(const LinearJob& job, int64_t row, int64_t block, const float* acc,
                        const float* acc_up) {
  const int64_t column = block * 16;
  const int64_t valid = job.n - column;
  const Lanes sum = BiasedSum(job, block, acc);
  switch (job.epilogue) {
    case Epilogue::kBf16:
      StoreSomeBf16(job.y + row * job.y_stride + column, sum, valid);
      return;
    case Epilogue::kFp32:
      StoreSome(job.y_fp32 + row * job.y_stride + column, CanonicalizeNan(sum), valid);
      return;
    case Epilogue::kResidualAdd: {
      const Lanes residual = LoadSomeBf16(job.residual + row * job.residual_stride + column, valid);
      StoreSomeBf16(job.y + row * job.y_stride + column, Add(residual, RoundBf16(sum)), valid);
      return;
    }
    case Epilogue::kGelu:
      StoreSomeBf16(job.y + row * job.y_stride + column, Gelu(RoundBf16(sum)), valid);
      return;
    case Epilogue::kSwiGlu:
    case Epilogue::kGeGlu: {
      const Lanes gate = RoundBf16(sum), up = RoundBf16(BiasedSum(job, block + 1, acc_up));
      const Lanes open = job.epilogue == Epilogue::kSwiGlu ? Silu(gate) : GeluTanh(gate);
      StoreBf16(job.y + row * job.y_stride + column / 2, Mul(open, up));
      return;
    }
  }
}

// All blocks [first, first + blocks) of a row; acc_of(block) gives the accumulators of a block.
template <typename AccOf>
inline void FinishRow(const LinearJob& job, int64_t row, int64_t first, int64_t blocks,
                      const AccOf& acc_of) {
  if (IsGated(job.epilogue)) {
    for (int64_t b = first; b < first + blocks; b += 2) {
      FinishBlock(job, row, b, acc_of(b), acc_of(b + 1));
    }
    return;
  }
  for (int64_t b = first; b < first + blocks; ++b) FinishBlock(job, row, b, acc_of(b), nullptr);
}

}  // namespace
}  // namespace baton
