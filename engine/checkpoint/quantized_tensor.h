// A matrix [outputs, inputs] stored as small codes, scales and zero points, and the values that
// they encode:
//   value(n, k) = (code(n, k) - zero(n / block_rows, g)) * scale(n / block_rows, g)
// where g = k / group, or the k-th entry of the group index. The difference is exact, and the
// product is rounded once to fp32. Pure functions over mapped, unaligned bytes: any thread. Shapes
// are checked where a tensor is opened (quantized_parts.h).
//
// With w = 32 / bits codes in a little-endian int32 word, code j at bit j * bits:
//   kGptq    codes  [inputs / w, outputs]: code j of a word is input i * w + j
//            zeros  [groups, outputs / w]: code j is output i * w + j; version 1 stores zero - 1,
//            subtracted from whole words, so that a zero of 0 borrows from its neighbour
//            scales [groups, outputs]; group index [inputs]
//   kAwq     codes  [inputs, outputs / 8]: code j is output i * 8 + {0, 2, 4, 6, 1, 3, 5, 7}[j]
//            zeros  [groups, outputs / 8], the same; scales [groups, outputs]
//   kPacked  codes  [outputs, ceil(inputs / w)]: code j is input i * w + j; a code is the value
//            plus 2^(bits - 1)
//            zeros  [ceil(outputs / w), groups]: code j is output i * w + j, the same offset
//            scales [outputs / block_rows, groups]; group index [inputs]
//   kInt8    codes  [outputs, inputs] int8; zeros and scales [outputs / block_rows, groups]
//   kFp8     codes  [outputs, inputs] e4m3fn: sign, 4 bits of exponent (bias 7), 3 of fraction, no
//            infinities, NaN is 0x7f and 0xff; scales [outputs / block_rows, groups]
// Sources, read for these facts and compared with each other: kGptq:
// github.com/AutoGPTQ/AutoGPTQ auto_gptq/nn_modules/qlinear/qlinear_cuda.py (pack, forward),
// github.com/ModelCloud/GPTQModel gptqmodel/utils/model.py (conversion of versions); kAwq:
// github.com/casper-hansen/AutoAWQ awq/utils/packing_utils.py, github.com/vllm-project/vllm
// tests/kernels awq_triton tests; kPacked, kInt8: github.com/vllm-project/compressed-tensors
// src/compressed_tensors/compressors (pack_quantized, naive_quantized) and its converter of AWQ;
// kFp8: github.com/huggingface/transformers src/transformers/integrations/finegrained_fp8.py,
// arXiv 2209.05433 (e4m3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/model_desc.h"
#include "engine/model/quantization_desc.h"

namespace baton {

struct QuantizedTensor {
  CodeLayout layout = CodeLayout::kGptq;
  int bits = 4;
  int64_t rows = 0, cols = 0;   // outputs, inputs
  int64_t block_rows = 1;       // outputs per scale
  int64_t group = 1;            // inputs per scale
  int64_t n_groups = 1;         // ceil(cols / group)
  bool zeros_less_one = false;  // the stored zero points are 1 too small (kGptq version 1)
  Dtype scale_dtype = Dtype::kFp16;
  // Stored arrays, shaped as above, in the checkpoint's mapping, which must outlive the tensor.
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* zeros = nullptr;  // null: 0 (kInt8, kFp8) or 2^(bits - 1)
  std::vector<int32_t> group_index;  // (cols) below n_groups; empty: column / group
};

inline constexpr int64_t kTileRows = 16;  // one cache line of words across outputs
inline constexpr int64_t kTileCols = 128;

// Writes rows [row, row + n_rows) and columns [col, col + n_cols) to `tile`, with kTileCols floats
// per row. n_rows <= kTileRows, n_cols <= kTileCols, col a multiple of kTileCols. `tile` has room
// for kTileRows * kTileCols floats.
void DequantizeTile(const QuantizedTensor& tensor, int64_t row, int64_t n_rows, int64_t col,
                    int64_t n_cols, float* tile);

// Value i of a tensor of scales (or any floats of a file).
float FloatAt(const std::byte* values, Dtype dtype, int64_t i);

}  // namespace baton
