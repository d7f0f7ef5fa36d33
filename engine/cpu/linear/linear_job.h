// The data that a kernel unit of the linear layers sees: plain data and function pointers, so that
// no inline function of the standard library is compiled with a kernel unit's flags.
#pragma once

#include <cstdint>

#include "engine/cpu/machine/weight_type.h"
#include "engine/numerics/bf16.h"

namespace baton {

// Treatment of the fp32 accumulators (docs/NUMERICS.md). Outputs are bf16 unless stated otherwise.
// A NaN is written as the canonical NaN.
enum class Epilogue {
  kBf16,         // y = bf16(acc [+ bias])
  kFp32,         // y_fp32 = acc [+ bias]: LM head (N2), plain
  kResidualAdd,  // y = bf16(float(residual) + float(bf16(acc [+ bias])))   (N3), residual may
                 // be y
  kGelu,         // y = bf16(gelu(bf16(acc [+ bias]))), the exact form
  // Gated: weights alternate 16 gate and 16 up outputs, n % 32 == 0; y (n/2 wide) = bf16(f(g) * u)
  // of the bf16-rounded g and u (N6).
  kSwiGlu,  // f = silu
  kGeGlu,   // f = gelu, the tanh form
};

constexpr bool IsGated(Epilogue epilogue) {
  return epilogue == Epilogue::kSwiGlu || epilogue == Epilogue::kGeGlu;
}

// A norm of one row (elementwise.h): writes the norm of x (n) to out (n, then zeros up to
// n_padded). Null `apply`: rows are used unchanged.
struct RowNorm {
  void (*apply)(const RowNorm& norm, const bf16* x, bf16* out) = nullptr;
  const float* weight = nullptr;  // (n)
  const float* bias = nullptr;    // (n) LayerNorm only
  int64_t n = 0, n_padded = 0;
  float eps = 0;
};

// At most max_rows rows of one linear layer.
struct LinearJob {
  const bf16* x = nullptr;  // (rows, x_stride), k rounded up to 32 of each row are read
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // (rows) index in x of each row; null: in order
  RowNorm norm;  // applied to every row while it is packed: n is k, n_padded k rounded up to 32
  int64_t rows = 0;
  const void* weights = nullptr;  // blocks in the format of weight_format.h
  WeightType weight_type = WeightType::kBf16;
  int64_t n = 0, n_blocks = 0, k = 0, k_padded = 0;
  int64_t group_k = 0, group_bytes = 0, block_bytes = 0;  // integer weights only
  const float* bias = nullptr;
  Epilogue epilogue = Epilogue::kBf16;
  bf16* y = nullptr;
  float* y_fp32 = nullptr;
  int64_t y_stride = 0;
  const bf16* residual = nullptr;
  int64_t residual_stride = 0;
  int64_t members = 1;    // members of the pool: how finely the job is cut, which changes no bit
  int64_t item_step = 1;  // from an item to the one that its member most likely claims next
  void* packed_rows = nullptr;  // packed_rows_bytes, 64-byte aligned: x in the form of the kernels
};

// One set of kernels. A job is run in two parallel regions: every pack item, then every run item.
struct LinearKernelTable {
  int64_t max_rows;
  int64_t (*packed_rows_bytes)(const LinearJob& job);
  int64_t (*pack_items)(const LinearJob& job);
  // row: room for a row of x whose norm is taken first, 64-byte aligned; it stays in L1.
  void (*pack)(const LinearJob& job, int64_t item, bf16* row);
  int64_t (*scratch_bytes)(const LinearJob& job);  // per member of the pool
  int64_t (*run_items)(const LinearJob& job);
  void (*run)(const LinearJob& job, int64_t item, void* scratch);  // scratch 64-byte aligned
};

extern const LinearKernelTable kLinearAvx2;
extern const LinearKernelTable kLinearAvx512;
extern const LinearKernelTable kLinearAvx512Bf16;
// Integer weights; Vnni needs AVX-512 VNNI.
extern const LinearKernelTable kInt8Avx2, kInt4Avx2;
extern const LinearKernelTable kInt8Avx512, kInt4Avx512;
extern const LinearKernelTable kInt8Vnni, kInt4Vnni;
extern const LinearKernelTable kInt8VnniZen, kInt4VnniZen;  // tuned for Zen 4
// AMX machines, by form (linear_form.h).
extern const LinearKernelTable kLinearAmxVectors;
extern const LinearKernelTable kLinearAmxStream, kLinearAmxRowsInL2, kLinearAmxWeightsInL2;
extern const LinearKernelTable kInt8AmxStream, kInt8AmxRowsInL2, kInt8AmxWeightsInL2;
extern const LinearKernelTable kInt4AmxStream, kInt4AmxRowsInL2, kInt4AmxWeightsInL2;

}  // namespace baton
