#include <algorithm>
#include <cstring>

#include "engine/cpu/linear/linear.h"

namespace baton {

void PackBlock(const bf16* weights, int64_t n, int64_t k, int64_t block, bf16* packed) {
  const int64_t k_padded = RoundUp(k, 32);
  bf16* out = packed + block * 16 * k_padded;
  std::memset(out, 0, static_cast<size_t>(16 * k_padded) * sizeof(bf16));
  for (int64_t lane = 0; lane < 16 && block * 16 + lane < n; ++lane) {
    const bf16* row = weights + (block * 16 + lane) * k;
    for (int64_t i = 0; i < k; ++i) out[(i / 2) * 32 + lane * 2 + (i & 1)] = row[i];
  }
}

void PackIntegerBlock(const int8_t* values, const float* scales, int64_t outputs, int64_t k,
                      WeightFormat format, void* packed) {
  const bool is_int8 = format.type == WeightType::kInt8;
  const int64_t groups = format.Groups(k), group_k = format.GroupK(k);
  const int zero_point = is_int8 ? 128 : 8;
  uint8_t* group = static_cast<uint8_t*>(packed);
  for (int64_t g = 0; g < groups; ++g, group += format.GroupBytes(k)) {
    uint8_t* lines = group + 16 * sizeof(float);
    std::memset(group, 0, 16 * sizeof(float));
    std::memset(lines, is_int8 ? zero_point : zero_point * 17,
                static_cast<size_t>(format.GroupBytes(k)) - 16 * sizeof(float));
    for (int64_t lane = 0; lane < outputs; ++lane) {
      std::memcpy(group + lane * sizeof(float), &scales[lane * groups + g], sizeof(float));
      const int64_t begin = g * group_k, n = std::min(group_k, k - begin);
      const int8_t* from = values + lane * k + begin;
      for (int64_t i = 0; i < n; ++i) {
        const uint8_t stored = static_cast<uint8_t>(from[i] + zero_point);
        if (is_int8) {
          lines[i / 4 * 64 + lane * 4 + i % 4] = stored;
        } else {
          uint8_t& byte = lines[i / 8 * 64 + lane * 4 + i % 4];
          byte = static_cast<uint8_t>(i / 4 % 2 == 0 ? (byte & 0xf0) | stored
                                                     : (byte & 0x0f) | stored << 4);
        }
      }
    }
  }
}

}  // namespace baton
