#include "engine/checkpoint/gguf_tensor_type.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/numerics/half.h"

namespace baton {
namespace {

// Reads the bytes of a block front to back.
class Block {
 public:
  explicit Block(const std::byte* at) : at_(reinterpret_cast<const uint8_t*>(at)) {}
  float Half() {
    const uint16_t half = static_cast<uint16_t>(at_[0] | at_[1] << 8);
    at_ += 2;
    return HalfToFloat(half);
  }
  const uint8_t* Bytes(int n) {
    const uint8_t* const bytes = at_;
    at_ += n;
    return bytes;
  }

 private:
  const uint8_t* at_;
};

// Value i of a block of 32 values with i and i + 16 in one byte.
int NibbleOf32(const uint8_t* nibbles, int i) {
  return i < 16 ? nibbles[i] & 0xf : nibbles[i - 16] >> 4;
}

int Bit(const uint8_t* bytes, int i) { return bytes[i / 8] >> (i % 8) & 1; }

void DequantizeQ8_0(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half();
  const uint8_t* const q = block.Bytes(32);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(q[i])) * d;
}

void DequantizeQ4_0(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half();
  const uint8_t* const q = block.Bytes(16);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(NibbleOf32(q, i) - 8);
}

void DequantizeQ4_1(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half(), m = block.Half();
  const uint8_t* const q = block.Bytes(16);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(NibbleOf32(q, i)) + m;
}

void DequantizeQ5_0(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half();
  const uint8_t *const high = block.Bytes(4), *const q = block.Bytes(16);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>((NibbleOf32(q, i) | Bit(high, i) << 4) - 16);
  }
}

void DequantizeQ5_1(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half(), m = block.Half();
  const uint8_t *const high = block.Bytes(4), *const q = block.Bytes(16);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(NibbleOf32(q, i) | Bit(high, i) << 4) + m;
  }
}

// One of the eight scales and minima of Q4_K and Q5_K: the first four are the low six bits of a
// byte, the others a nibble and the two remaining bits of a byte of the first four.
struct SixBits {
  int scale, min;
};
SixBits SixBitsOf(const uint8_t* bytes, int i) {
  if (i < 4) return {bytes[i] & 63, bytes[i + 4] & 63};
  return {(bytes[i + 4] & 0xf) | bytes[i - 4] >> 6 << 4, bytes[i + 4] >> 4 | bytes[i] >> 6 << 4};
}

// high: high bits of Q5_K; null for Q4_K.
void DequantizeSuperBlock(float d, float m, const uint8_t* scales, const uint8_t* high,
                          const uint8_t* nibbles, float* out) {
  for (int part = 0; part < 8; ++part) {
    const SixBits bits = SixBitsOf(scales, part);
    const float scale = d * static_cast<float>(bits.scale);
    const float min = m * static_cast<float>(bits.min);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = nibbles[part / 2 * 32 + i];
      int q = part % 2 == 0 ? byte & 0xf : byte >> 4;
      if (high != nullptr) q |= (high[i] >> part & 1) << 4;
      *out++ = scale * static_cast<float>(q) - min;
    }
  }
}

void DequantizeQ4_K(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half(), m = block.Half();
  const uint8_t* const scales = block.Bytes(12);
  DequantizeSuperBlock(d, m, scales, nullptr, block.Bytes(128), out);
}

void DequantizeQ5_K(const std::byte* from, float* out) {
  Block block(from);
  const float d = block.Half(), m = block.Half();
  const uint8_t *const scales = block.Bytes(12), *const high = block.Bytes(32);
  DequantizeSuperBlock(d, m, scales, high, block.Bytes(128), out);
}

void DequantizeQ6_K(const std::byte* from, float* out) {
  Block block(from);
  const uint8_t *const low = block.Bytes(128), *const high = block.Bytes(64),
                       *const scales = block.Bytes(16);
  const float d = block.Half();
  for (int value = 0; value < 256; ++value) {
    const int half = value / 128, j = value / 32 % 4, i = value % 32;
    const uint8_t byte = low[half * 64 + j % 2 * 32 + i];
    const int q = (j < 2 ? byte & 0xf : byte >> 4) | (high[half * 32 + i] >> (2 * j) & 3) << 4;
    const float scale = d * static_cast<float>(static_cast<int8_t>(scales[value / 16]));
    out[value] = scale * static_cast<float>(q - 32);
  }
}

constexpr GgufTensorType kTypes[] = {
    {.id = 0, .name = "F32", .block_values = 1, .block_bytes = 4, .plain = Dtype::kFp32},
    {.id = 1, .name = "F16", .block_values = 1, .block_bytes = 2, .plain = Dtype::kFp16},
    {.id = 30, .name = "BF16", .block_values = 1, .block_bytes = 2, .plain = Dtype::kBf16},
    {2, "Q4_0", 32, 18, {}, DequantizeQ4_0},
    {3, "Q4_1", 32, 20, {}, DequantizeQ4_1},
    {6, "Q5_0", 32, 22, {}, DequantizeQ5_0},
    {7, "Q5_1", 32, 24, {}, DequantizeQ5_1},
    {8, "Q8_0", 32, 34, {}, DequantizeQ8_0},
    {12, "Q4_K", 256, 144, {}, DequantizeQ4_K},
    {13, "Q5_K", 256, 176, {}, DequantizeQ5_K},
    {14, "Q6_K", 256, 210, {}, DequantizeQ6_K},
    // Types known by name and size only.
    {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
};

}  // namespace

const GgufTensorType* FindGgufTensorType(uint32_t id) {
  for (const GgufTensorType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

std::string SupportedGgufTensorTypes() {
  std::string names;
  for (const GgufTensorType& type : kTypes) {
    if (type.is_supported()) {
      absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(type.name));
    }
  }
  return names;
}

}  // namespace baton
