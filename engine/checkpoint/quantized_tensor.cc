#include "engine/checkpoint/quantized_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/numerics/bf16.h"
#include "engine/numerics/half.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little);

// memcpy: tensors are not aligned in the file.
uint32_t WordAt(const std::byte* words, int64_t i) {
  uint32_t word;
  std::memcpy(&word, words + i * 4, sizeof(word));
  return word;
}

// Position in AWQ's word of output n of eight.
constexpr std::array<int, 8> kAwqPlace = {0, 4, 1, 5, 2, 6, 3, 7};

std::array<float, 256> MakeFp8Values() {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    // NaN codes were refused at load; their value does not matter.
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), -9)
                                : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    values[code] = code >= 128 ? -magnitude : magnitude;
  }
  return values;
}
const std::array<float, 256> kFp8Values = MakeFp8Values();

// ---- codes of a tile, as floats ----

struct Tile {
  int64_t row, n_rows, col, n_cols;
  float* values;
  float& at(int64_t r, int64_t c) const { return values[r * kTileCols + c]; }
};

void ReadGptqCodes(const QuantizedTensor& t, const Tile& tile) {
  const int per_word = 32 / t.bits;
  const uint32_t mask = (1u << t.bits) - 1;
  for (int64_t c = 0; c < tile.n_cols; c += per_word) {
    const int64_t first = (tile.col + c) / per_word * t.rows + tile.row;
    for (int64_t r = 0; r < tile.n_rows; ++r) {
      uint32_t word = WordAt(t.codes, first + r);
      for (int j = 0; j < per_word; ++j, word >>= t.bits) {
        tile.at(r, c + j) = static_cast<float>(word & mask);
      }
    }
  }
}

void ReadAwqCodes(const QuantizedTensor& t, const Tile& tile) {
  for (int64_t c = 0; c < tile.n_cols; ++c) {
    const int64_t first = (tile.col + c) * (t.rows / 8);
    for (int64_t r = 0; r < tile.n_rows; ++r) {
      const int64_t n = tile.row + r;
      const uint32_t word = WordAt(t.codes, first + n / 8);
      tile.at(r, c) = static_cast<float>(word >> 4 * kAwqPlace[n % 8] & 15);
    }
  }
}

void ReadPackedCodes(const QuantizedTensor& t, const Tile& tile) {
  const int per_word = 32 / t.bits;
  const uint32_t mask = (1u << t.bits) - 1;
  const int64_t words = (t.cols + per_word - 1) / per_word;
  for (int64_t r = 0; r < tile.n_rows; ++r) {
    for (int64_t c = 0; c < tile.n_cols; c += per_word) {
      uint32_t word = WordAt(t.codes, (tile.row + r) * words + (tile.col + c) / per_word);
      const int64_t end = std::min<int64_t>(c + per_word, tile.n_cols);
      for (int64_t i = c; i < end; ++i, word >>= t.bits) {
        tile.at(r, i) = static_cast<float>(word & mask);
      }
    }
  }
}

template <typename ValueOf>
void ReadByteCodes(const QuantizedTensor& t, const Tile& tile, const ValueOf& value_of) {
  for (int64_t r = 0; r < tile.n_rows; ++r) {
    const std::byte* from = t.codes + (tile.row + r) * t.cols + tile.col;
    for (int64_t c = 0; c < tile.n_cols; ++c) tile.at(r, c) = value_of(from[c]);
  }
}

void ReadCodes(const QuantizedTensor& t, const Tile& tile) {
  switch (t.layout) {
    case CodeLayout::kGptq:
      return ReadGptqCodes(t, tile);
    case CodeLayout::kAwq:
      return ReadAwqCodes(t, tile);
    case CodeLayout::kPacked:
      return ReadPackedCodes(t, tile);
    case CodeLayout::kInt8:
      return ReadByteCodes(
          t, tile, [](std::byte code) { return static_cast<float>(static_cast<int8_t>(code)); });
    case CodeLayout::kFp8:
      return ReadByteCodes(t, tile,
                           [](std::byte code) { return kFp8Values[static_cast<uint8_t>(code)]; });
  }
}

// ---- scale and zero point of an output in a group ----

bool IsTransposed(const QuantizedTensor& t) {
  return t.layout == CodeLayout::kGptq || t.layout == CodeLayout::kAwq;
}

float ScaleOf(const QuantizedTensor& t, int64_t row, int64_t group) {
  const int64_t i =
      IsTransposed(t) ? group * t.rows + row : row / t.block_rows * t.n_groups + group;
  return FloatAt(t.scales, t.scale_dtype, i);
}

uint32_t PackedZero(const QuantizedTensor& t, int64_t row, int64_t group) {
  const int per_word = 32 / t.bits;
  const uint32_t mask = (1u << t.bits) - 1;
  const int place = static_cast<int>(row % per_word);
  if (t.layout == CodeLayout::kPacked) {
    return WordAt(t.zeros, row / per_word * t.n_groups + group) >> place * t.bits & mask;
  }
  uint32_t word = WordAt(t.zeros, group * (t.rows / per_word) + row / per_word);
  if (t.layout == CodeLayout::kAwq) return word >> 4 * kAwqPlace[place] & mask;
  if (!t.zeros_less_one) return word >> place * t.bits & mask;
  word += ~0u / mask;  // a one in every code, with the carry that mirrors the borrow
  return word >> place * t.bits & mask;
}

float ZeroOf(const QuantizedTensor& t, int64_t row, int64_t group) {
  if (t.zeros == nullptr) {
    return t.layout == CodeLayout::kPacked ? static_cast<float>(1 << (t.bits - 1)) : 0.0f;
  }
  if (t.layout == CodeLayout::kInt8) {
    return static_cast<float>(
        static_cast<int8_t>(t.zeros[row / t.block_rows * t.n_groups + group]));
  }
  return static_cast<float>(PackedZero(t, row, group));
}

void ScaleRun(float zero, float scale, int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = (values[i] - zero) * scale;
}

void ScaleRow(const QuantizedTensor& t, int64_t row, int64_t col, int64_t n, float* values) {
  if (!t.group_index.empty()) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t group = t.group_index[static_cast<size_t>(col + i)];
      ScaleRun(ZeroOf(t, row, group), ScaleOf(t, row, group), 1, values + i);
    }
    return;
  }
  for (int64_t i = 0; i < n;) {
    const int64_t group = (col + i) / t.group;
    const int64_t end = std::min(n, (group + 1) * t.group - col);
    ScaleRun(ZeroOf(t, row, group), ScaleOf(t, row, group), end - i, values + i);
    i = end;
  }
}

}  // namespace

void DequantizeTile(const QuantizedTensor& tensor, int64_t row, int64_t n_rows, int64_t col,
                    int64_t n_cols, float* tile) {
  ReadCodes(tensor, {row, n_rows, col, n_cols, tile});
  for (int64_t r = 0; r < n_rows; ++r) {
    ScaleRow(tensor, row + r, col, n_cols, tile + r * kTileCols);
  }
}

float FloatAt(const std::byte* values, Dtype dtype, int64_t i) {
  if (dtype == Dtype::kFp32) {
    float value;
    std::memcpy(&value, values + i * 4, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, values + i * 2, sizeof(half));
  return dtype == Dtype::kBf16 ? Bf16ToFloat(half) : HalfToFloat(half);
}

}  // namespace baton
