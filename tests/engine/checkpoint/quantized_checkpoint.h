// Writes quantised matrices the way each format defines them, value by value and bit by bit,
// together with the values they stand for. Written from the formats' own packing code (see
// engine/checkpoint/quantized_tensor.h), independently of the reader.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/numerics/bf16.h"
#include "engine/numerics/half.h"
#include "tests/engine/checkpoint/checkpoint_writer.h"

namespace baton {

// The quantisation of a matrix in a test; 0 = all rows, all columns.
struct GridShape {
  int bits = 4;
  int64_t block_rows = 1, group = 32;
  bool is_signed = false;  // codes start at -2^(bits-1), else at 0
  bool has_zeros = true;   // false: the middle of the range is zero
  bool has_index = false;  // groups are given by a list, each with `group` columns
  std::string scale_dtype = "F16";
};

// Codes, scales and zero points of a matrix [rows, cols].
struct Grid {
  GridShape shape;
  int64_t rows, cols, block_rows, group, n_groups;
  std::vector<int32_t> codes, zeros;  // (rows, cols), (row blocks, groups)
  std::vector<float> scales;          // (row blocks, groups) rounded to scale_dtype
  std::vector<int32_t> index;         // (cols) group of each column

  int64_t ScaleAt(int64_t n, int64_t k) const { return n / block_rows * n_groups + index[k]; }
  int64_t n_blocks() const { return (rows + block_rows - 1) / block_rows; }
};

// Rounds a positive value in the range of normal halves.
inline uint16_t NearestHalf(float value) {
  const int exponent = std::ilogb(value);
  const int fraction = static_cast<int>(std::nearbyint(std::ldexp(value, 10 - exponent)));
  return static_cast<uint16_t>((exponent + 15) * 1024 + fraction - 1024);
}

inline std::string ScaleBytes(const std::vector<float>& scales, const std::string& dtype) {
  if (dtype == "F32") return BytesOf(scales);
  std::vector<uint16_t> halves;
  for (const float scale : scales) {
    halves.push_back(dtype == "BF16" ? FloatToBf16(scale) : NearestHalf(scale));
  }
  return BytesOf(halves);
}

inline float RoundScale(float scale, const std::string& dtype) {
  if (dtype == "F32") return scale;
  return dtype == "BF16" ? Bf16ToFloat(FloatToBf16(scale)) : HalfToFloat(NearestHalf(scale));
}

// Rounds to nearest on a grid whose scales all differ.
inline Grid MakeGrid(const std::vector<float>& values, int64_t rows, int64_t cols,
                     const GridShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Grid grid{shape,
            rows,
            cols,
            shape.block_rows > 0 ? shape.block_rows : rows,
            shape.group > 0 ? shape.group : cols,
            0,
            {},
            {},
            {},
            {}};
  grid.n_groups = (cols + grid.group - 1) / grid.group;
  for (int64_t k = 0; k < cols; ++k) grid.index.push_back(static_cast<int32_t>(k / grid.group));
  if (shape.has_index) std::shuffle(grid.index.begin(), grid.index.end(), random);
  const int32_t low = shape.is_signed ? -(1 << (shape.bits - 1)) : 0;
  const int32_t high = low + (1 << shape.bits) - 1;
  const int32_t middle = shape.is_signed ? 0 : 1 << (shape.bits - 1);
  for (int64_t i = 0; i < grid.n_blocks() * grid.n_groups; ++i) {
    const float steps = static_cast<float>(1 << (shape.bits - 1));
    const float spread = 0.04f + static_cast<float>(random() % 1000) * 2e-5f;
    grid.scales.push_back(RoundScale(spread / steps, shape.scale_dtype));
    // Zero points near the middle; 0 itself has its own test case.
    const int32_t shift = static_cast<int32_t>(random() % 3) - 1;
    grid.zeros.push_back(shape.has_zeros ? middle + shift : middle);
  }
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t at = grid.ScaleAt(n, k);
      const float steps = std::round(values[n * cols + k] / grid.scales[at]);
      const int32_t code = static_cast<int32_t>(steps) + grid.zeros[at];
      grid.codes.push_back(std::clamp(code, low, high));
    }
  }
  return grid;
}

inline std::vector<float> GridValues(const Grid& grid) {
  std::vector<float> values;
  for (int64_t n = 0; n < grid.rows; ++n) {
    for (int64_t k = 0; k < grid.cols; ++k) {
      const int64_t at = grid.ScaleAt(n, k);
      const double steps = grid.codes[n * grid.cols + k] - grid.zeros[at];
      values.push_back(static_cast<float>(steps * static_cast<double>(grid.scales[at])));
    }
  }
  return values;
}

// A matrix [rows, cols] of words that hold codes.
class Words {
 public:
  Words(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
    words_.resize(static_cast<size_t>(rows * cols));
  }
  void Put(int64_t row, int64_t col, int shift, int32_t code, int bits) {
    const uint32_t mask = (1u << bits) - 1;
    words_[row * cols_ + col] |= (static_cast<uint32_t>(code) & mask) << shift;
  }
  FileTensor Tensor() const { return {"I32", {rows_, cols_}, BytesOf(words_)}; }
  std::vector<uint32_t>& words() { return words_; }

 private:
  int64_t rows_, cols_;
  std::vector<uint32_t> words_;
};

// Returns scales as [groups, rows] from [rows, groups], as in GPTQ and AWQ.
inline FileTensor TransposedScales(const Grid& grid) {
  std::vector<float> scales;
  for (int64_t g = 0; g < grid.n_groups; ++g) {
    for (int64_t n = 0; n < grid.rows; ++n) scales.push_back(grid.scales[n * grid.n_groups + g]);
  }
  return {grid.shape.scale_dtype,
          {grid.n_groups, grid.rows},
          ScaleBytes(scales, grid.shape.scale_dtype)};
}

inline void AddGptq(const std::string& module, const Grid& grid, bool is_v1, FileTensors& out) {
  const int bits = grid.shape.bits, per_word = 32 / bits;
  Words codes(grid.cols / per_word, grid.rows), zeros(grid.n_groups, grid.rows / per_word);
  for (int64_t k = 0; k < grid.cols; ++k) {
    for (int64_t n = 0; n < grid.rows; ++n) {
      codes.Put(k / per_word, n, static_cast<int>(k % per_word) * bits,
                grid.codes[n * grid.cols + k], bits);
    }
  }
  for (int64_t g = 0; g < grid.n_groups; ++g) {
    for (int64_t n = 0; n < grid.rows; ++n) {
      const int32_t zero = grid.zeros[n * grid.n_groups + g];
      zeros.Put(g, n / per_word, static_cast<int>(n % per_word) * bits, is_v1 ? zero - 1 : zero,
                bits);
    }
  }
  out[module + ".qweight"] = codes.Tensor();
  out[module + ".qzeros"] = zeros.Tensor();
  out[module + ".scales"] = TransposedScales(grid);
  out[module + ".g_idx"] = {"I32", {grid.cols}, BytesOf(grid.index)};
}

inline void AddAwq(const std::string& module, const Grid& grid, FileTensors& out) {
  constexpr std::array<int, 8> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};
  Words codes(grid.cols, grid.rows / 8), zeros(grid.n_groups, grid.rows / 8);
  for (int64_t word = 0; word < grid.rows / 8; ++word) {
    for (int i = 0; i < 8; ++i) {
      const int64_t n = word * 8 + kOrder[i];
      for (int64_t k = 0; k < grid.cols; ++k) {
        codes.Put(k, word, i * 4, grid.codes[n * grid.cols + k], 4);
      }
      for (int64_t g = 0; g < grid.n_groups; ++g) {
        zeros.Put(g, word, i * 4, grid.zeros[n * grid.n_groups + g], 4);
      }
    }
  }
  out[module + ".qweight"] = codes.Tensor();
  out[module + ".qzeros"] = zeros.Tensor();
  out[module + ".scales"] = TransposedScales(grid);
}

inline FileTensor RowScales(const Grid& grid) {
  std::vector<int64_t> shape{grid.n_blocks(), grid.n_groups};
  if (grid.shape.block_rows == 0) shape = {1};
  return {grid.shape.scale_dtype, shape, ScaleBytes(grid.scales, grid.shape.scale_dtype)};
}

// Codes of `grid` are signed; words hold code + 2^(bits - 1).
inline void AddPacked(const std::string& module, const Grid& grid, FileTensors& out) {
  const int bits = grid.shape.bits, per_word = 32 / bits, offset = 1 << (bits - 1);
  Words codes(grid.rows, (grid.cols + per_word - 1) / per_word);
  for (int64_t n = 0; n < grid.rows; ++n) {
    for (int64_t k = 0; k < grid.cols; ++k) {
      codes.Put(n, k / per_word, static_cast<int>(k % per_word) * bits,
                grid.codes[n * grid.cols + k] + offset, bits);
    }
  }
  out[module + ".weight_packed"] = codes.Tensor();
  out[module + ".weight_scale"] = RowScales(grid);
  out[module + ".weight_shape"] = {"I64", {2}, BytesOf(std::vector<int64_t>{grid.rows, grid.cols})};
  if (grid.shape.has_zeros) {
    Words zeros((grid.rows + per_word - 1) / per_word, grid.n_groups);
    for (int64_t n = 0; n < grid.rows; ++n) {
      for (int64_t g = 0; g < grid.n_groups; ++g) {
        zeros.Put(n / per_word, g, static_cast<int>(n % per_word) * bits,
                  grid.zeros[n * grid.n_groups + g] + offset, bits);
      }
    }
    out[module + ".weight_zero_point"] = zeros.Tensor();
  }
  if (grid.shape.has_index) {
    out[module + ".weight_g_idx"] = {"I32", {grid.cols}, BytesOf(grid.index)};
  }
}

inline void AddInt8(const std::string& module, const Grid& grid, FileTensors& out) {
  const std::vector<int8_t> codes(grid.codes.begin(), grid.codes.end());
  out[module + ".weight"] = {"I8", {grid.rows, grid.cols}, BytesOf(codes)};
  out[module + ".weight_scale"] = RowScales(grid);
  if (grid.shape.has_zeros) {
    const std::vector<int8_t> zeros(grid.zeros.begin(), grid.zeros.end());
    out[module + ".weight_zero_point"] = {"I8", RowScales(grid).shape, BytesOf(zeros)};
  }
}

// Returns the value of an e4m3fn number from its bits.
inline float E4m3Value(int code) {
  const int exponent = code >> 3 & 15;
  const double fraction = (code & 7) / 8.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return static_cast<float>((code & 128) != 0 ? -magnitude : magnitude);
}

// Codes are bytes: value = E4m3Value(code) * scale.
inline Grid MakeFp8Grid(const std::vector<float>& values, int64_t rows, int64_t cols,
                        const GridShape& shape, uint32_t seed) {
  Grid grid = MakeGrid(values, rows, cols, shape, seed);
  std::vector<float> positive;  // values of codes 0 .. 126, ascending
  for (int code = 0; code < 127; ++code) positive.push_back(E4m3Value(code));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) {
      const float wanted = values[n * cols + k] / grid.scales[grid.ScaleAt(n, k)];
      const auto above = std::lower_bound(positive.begin(), positive.end(), std::abs(wanted));
      const auto code = std::min(above, positive.end() - 1) - positive.begin();
      grid.codes[n * cols + k] = static_cast<int32_t>(code) + (wanted < 0 ? 128 : 0);
    }
  }
  return grid;
}

inline std::vector<float> Fp8Values(const Grid& grid) {
  std::vector<float> values;
  for (int64_t n = 0; n < grid.rows; ++n) {
    for (int64_t k = 0; k < grid.cols; ++k) {
      values.push_back(E4m3Value(grid.codes[n * grid.cols + k]) * grid.scales[grid.ScaleAt(n, k)]);
    }
  }
  return values;
}

inline void AddFp8(const std::string& module, const Grid& grid, const std::string& scale_name,
                   FileTensors& out) {
  const std::vector<uint8_t> codes(grid.codes.begin(), grid.codes.end());
  out[module + ".weight"] = {"F8_E4M3", {grid.rows, grid.cols}, BytesOf(codes)};
  out[module + "." + scale_name] = RowScales(grid);
}

}  // namespace baton
