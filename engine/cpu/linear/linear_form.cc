#include "engine/cpu/linear/linear_form.h"

namespace baton {
namespace {

// Largest number of rows that vector registers multiply fastest. Measured on an AMX Xeon with 2
// cores, from memory, GB/s of weights by vpdpbusd and by tiles: int8, k 2,048 and 8,192, 4 rows
// 34.5 and 32.5, 8 rows 32-34 and 31-32, 16 rows 25 and 31; k 768, 4 rows 29.5 and 29.9, 8 rows
// 25 and 28. bf16 and int4 on tiles are faster from 2 rows on; one int4 row, too, but not in a step
// of the 125M shape (636-644 tokens/s, by vpdpbusd 661-699).
int64_t VectorRows(WeightType type, int64_t k) {
  constexpr int64_t kShort = 1024;
  switch (type) {
    case WeightType::kBf16:
    case WeightType::kInt4:
      return 1;
    case WeightType::kInt8:
      return k <= kShort ? 4 : 8;
  }
  return 1;
}

// Rows whose sums fit into tile registers: of two blocks over all of K (gemm_tile_plain_sets.h); of
// a group of int4, beside the rows (gemm_tile_group_sets.h).
int64_t StreamRows(WeightType type) { return type == WeightType::kInt4 ? 32 : 48; }

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
  if (isa != Isa::kAmx || rows <= VectorRows(weights.type, k)) return LinearForm::kVectors;
  if (rows <= StreamRows(weights.type)) return LinearForm::kTileStream;
  return rows * RowBytes(weights, k) <= kMaxRowBytes ? LinearForm::kRowsInL2
                                                     : LinearForm::kWeightsInL2;
}

}  // namespace baton
