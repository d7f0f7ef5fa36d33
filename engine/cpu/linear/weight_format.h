// The format of a packed matrix, with the places of all its parts. Blocks of 16 outputs follow each
// other; groups of a block follow each other:
//
//   bf16   (k_padded / 2, 16 outputs, 2) bf16: a 64-byte line is one k pair (linear.h)
//   int8   one group of all k: {16 fp32 scales, (k_padded / 4, 16 outputs, 4) bytes, value + 128}
//   int4   groups of 32, 64 or 128 k: {16 fp32 scales, (group / 8, 16 outputs, 4) bytes},
//          value + 8; the low half of a byte belongs to k quad 2i, the high half to quad 2i + 1
//
// A weight is (stored - zero point) * scale. Padding holds the zero point.
#pragma once

#include <cstdint>
#include <string>

#include "engine/cpu/linear/linear_job.h"

namespace baton {

inline int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

struct WeightFormat {
  WeightType type = WeightType::kBf16;
  int group = 0;  // int4 only: k of one scale

  // "bf16", "int8", "int4g128": part of numerics ids and keys of packed files.
  std::string Name() const;
  int64_t KPadded(int64_t k) const;
  int64_t Groups(int64_t k) const { return KPadded(k) / GroupK(k); }
  // Padded k and bytes of one group of a block; bf16 has one.
  int64_t GroupK(int64_t k) const { return type == WeightType::kInt4 ? group : KPadded(k); }
  int64_t GroupBytes(int64_t k) const;
  int64_t BlockBytes(int64_t k) const { return Groups(k) * GroupBytes(k); }
  bool operator==(const WeightFormat&) const = default;
};

}  // namespace baton
