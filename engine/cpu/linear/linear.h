// Linear layers of numerics v1 on x86: y[r][n] = sum over k of x[r][k] * w[n][k], the same bits on
// every ISA path, for any number of rows, threads or tiles. bf16 weights in the tile order
// (docs/NUMERICS.md):
//
//   acc = +0;  for each 32-k group, ascending, zero padding takes part:
//     e = o = +0;  for p = 0..15: e = fma(x[2p], w[2p], e); o = fma(x[2p+1], w[2p+1], o)
//     acc = acc + (e + o)                                 all round-to-nearest-even, FTZ + DAZ
//
// Integer weights (docs/NUMERICS.md N1): x as int8 with one scale per row, absmax / 127 rounded to
// nearest even (integer_rows.h); sums of integers are exact, so their order is free:
//
//   int8   y = fp32(sum over k) * (row scale * output scale)
//   int4   acc = +0;  for each group of k, ascending: acc = fma(fp32(sum), output's scale, acc)
//          y = acc * row scale
//
// Weights are packed once for all x86 machines (weight_format.h): one 64-byte line = 16 outputs x
// one k pair of bf16 (or quad of int8) = one zmm; 16 lines = one AMX B tile. Rows come in logical
// order; a kernel set that wants them permuted does so in its own scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/status.h"
#include "engine/cpu/linear/linear_job.h"
#include "engine/cpu/linear/weight_format.h"
#include "engine/cpu/machine/isa.h"
#include "engine/numerics/bf16.h"
#include "engine/threads/compute_pool.h"

namespace baton {

// A packed matrix, not owned (it lies in the mapped weights file).
struct PackedWeights {
  const void* data = nullptr;  // 64-byte aligned
  int64_t n = 0, k = 0;        // without padding
  WeightFormat format = {};
  int64_t n_padded() const { return RoundUp(n, 16); }
  int64_t k_padded() const { return format.KPadded(k); }
  static int64_t Bytes(int64_t n, int64_t k, WeightFormat format = {}) {
    return RoundUp(n, 16) / 16 * format.BlockBytes(k);
  }
};

// Packs outputs [16 * block, 16 * block + 16) of a row-major (n, k) bf16 matrix into `packed`
// (the whole matrix's buffer). Blocks are independent: call them in parallel.
void PackBlock(const bf16* weights, int64_t n, int64_t k, int64_t block, bf16* packed);
// Packs one block of up to 16 outputs of integer weights: values (outputs, k), scales (outputs,
// groups); the places of missing outputs hold zeros. packed: the block, BlockBytes.
void PackIntegerBlock(const int8_t* values, const float* scales, int64_t outputs, int64_t k,
                      WeightFormat format, void* packed);

struct LinearArgs {
  const bf16* x = nullptr;  // (rows, x_stride), x_stride >= k rounded up to 32, zeros from k on
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // (rows) rows of x, in any order; null: the first `rows` of it
  RowNorm norm;  // norm of the rows of x, computed while rows are packed, in one pass
  int64_t rows = 0;
  PackedWeights weights;
  const float* bias = nullptr;  // (n) or null
  Epilogue epilogue = Epilogue::kBf16;
  bf16* y = nullptr;  // (rows, y_stride); columns beyond n are not written
  int64_t y_stride = 0;
  float* y_fp32 = nullptr;         // kFp32
  const bf16* residual = nullptr;  // (rows, residual_stride)
  int64_t residual_stride = 0;
};

// One kernel set, chosen once. Thread-compatible: one Linear may be used by one engine thread.
class LinearKernels {
 public:
  virtual ~LinearKernels() = default;
  virtual Isa isa() const = 0;
  // Runs all layers in two parallel regions, whatever their number and rows: the experts of a
  // sparse layer would otherwise be a row of barriers. No layer may read the output of another.
  virtual void RunAll(std::span<const LinearArgs> layers, ComputePool& pool) = 0;
  void Run(const LinearArgs& args, ComputePool& pool) { RunAll({&args, 1}, pool); }
  // Reserves scratch: a later RunAll of these layers allocates nothing, for any distribution of the
  // same total number of rows over the layers.
  virtual void Reserve(std::span<const LinearArgs> layers, ComputePool& pool) = 0;
};

// isa: a supported path. Runs a 4,096-element self-test against the FMA form first: a CPU that
// differs is an error (the caller falls back to another path instead of changing bits).
absl::StatusOr<std::unique_ptr<LinearKernels>> MakeLinearKernels(Isa isa);
// The fastest supported path by a measurement of some 20 ms on this machine, self-tested; among
// about equally fast paths the preferred one (isa.h).
absl::StatusOr<std::unique_ptr<LinearKernels>> MakeFastestLinearKernels(ComputePool& pool);

}  // namespace baton
