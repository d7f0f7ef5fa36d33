// Types of the tensors of a GGUF file: blocks of consecutive values of one row, each block with its
// own scales. A type that can be read has a function that computes the values of a block. Pure
// functions over mapped, unaligned bytes: any thread.
//
// With d, m: fp16 (as fp32), q: small integers, every product and sum rounded to fp32:
//   F32, F16, BF16  one value
//   Q8_0            32 values q * d: d, q as int8
//   Q4_0            32 values d * (q - 8): d, q in nibbles, value i and i + 16 in byte i
//   Q4_1            32 values d * q + m: d, m, nibbles as above
//   Q5_0, Q5_1      as Q4_0 and Q4_1, with a fifth bit of value i in bit i of a word before the
//                   nibbles, and q - 16
//   Q4_K            256 values (d * s) * q - (m * t): d, m, for each 32 a 6-bit s and t in 12
//                   bytes; nibbles, value i and i + 32 of each 64 in one byte
//   Q5_K            as Q4_K, with a fifth bit of value i of each 32 in bit (number of the 32) of
//                   byte i
//   Q6_K            256 values (d * s) * (q - 32): low nibbles, two high bits, for each 16 an int8
//                   s, d; of each 128 value i + 32 j has bit pair j of high byte i, and the low or
//                   (j from 2) high nibble of low byte i + 32 (j mod 2)
// Source of the facts: github.com/ggml-org/llama.cpp gguf-py/gguf/quants.py, constants.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/model_desc.h"

namespace baton {

inline constexpr int64_t kMaxBlockValues = 256;

struct GgufTensorType {
  uint32_t id;  // as in the file
  std::string_view name;
  int64_t block_values;  // 1 to kMaxBlockValues
  int64_t block_bytes;
  std::optional<Dtype> plain = {};  // dtype, if a block is one plain value
  // out: (block_values). Null: a plain type, or not supported.
  void (*dequantize)(const std::byte* block, float* out) = nullptr;
  bool is_supported() const { return plain.has_value() || dequantize != nullptr; }
};

// Returns an entry of a constant table. Null: unknown type, whose block size is not known here.
const GgufTensorType* FindGgufTensorType(uint32_t id);
// "F32, F16, Q4_0, ..."
std::string SupportedGgufTensorTypes();

}  // namespace baton
