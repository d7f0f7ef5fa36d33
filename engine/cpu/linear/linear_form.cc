#include "engine/cpu/linear/linear_form.h"

namespace baton {
namespace {

// Largest number of rows that are bound by memory, which vector registers read best. Measured on an
// AMX Xeon with 2 cores, from memory, GB/s of weights: int8 at 8 rows 34 by vpdpbusd, 29 by tiles;
// int4 at 8 rows 27 and 12, at 16 rows 21 by vpdpbusd. bf16 tiles are faster from 2 rows on.
int64_t VectorRows(WeightType type) {
  switch (type) {
    case WeightType::kBf16:
      return 1;
    case WeightType::kInt8:
      return 8;
    case WeightType::kInt4:
      return 16;
  }
  return 1;
}

// Sums of this many rows and two blocks fit into tile registers (gemm_tile_stream.h).
constexpr int64_t kMaxStreamRows = 48;

// Maximum size of rows that stay in L2 (2 MiB) and leave room there for weights and sums: panels of
// 1 MiB (gemm_tile_rows_in_l2.h has the figures).
constexpr int64_t kMaxRowBytes = int64_t{1} << 20;

// Bytes of a packed row: bf16, or bytes; int4 in groups of 32 k fills half of its tiles.
int64_t RowBytes(const WeightFormat& weights, int64_t k) {
  const bool is_half_full = weights.type == WeightType::kInt4 && weights.group == 32;
  return weights.type == WeightType::kBf16 || is_half_full ? 2 * k : k;
}

}  // namespace

std::string_view LinearFormName(LinearForm form) {
  switch (form) {
    case LinearForm::kVectors:
      return "vectors";
    case LinearForm::kTileStream:
      return "tile stream";
    case LinearForm::kRowsInL2:
      return "rows in L2";
    case LinearForm::kWeightsInL2:
      return "weights in L2";
  }
  return "unknown";
}

LinearForm LinearFormOf(Isa isa, const WeightFormat& weights, int64_t rows, int64_t k) {
  if (isa != Isa::kAmx || rows <= VectorRows(weights.type)) return LinearForm::kVectors;
  // int4 weights are expanded before tiles multiply them, so they do not stream.
  if (weights.type != WeightType::kInt4 && rows <= kMaxStreamRows) return LinearForm::kTileStream;
  return rows * RowBytes(weights, k) <= kMaxRowBytes ? LinearForm::kRowsInL2
                                                     : LinearForm::kWeightsInL2;
}

}  // namespace baton
