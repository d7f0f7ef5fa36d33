#include "engine/cpu/linear_form.h"

namespace baton {
namespace {

// Up to so many rows are bound by memory, and vector registers read it best. Measured on an AMX
// Xeon with 2 cores, from memory, GB/s of weights: int8 at 8 rows 34 by vpdpbusd, 29 by tiles; int4
// at 8 rows 27 and 12, at 16 rows 21 by vpdpbusd. bf16 tiles are the faster ones from 2 rows on.
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

}  // namespace

std::string_view LinearFormName(LinearForm form) {
  switch (form) {
    case LinearForm::kVectors:
      return "vectors";
    case LinearForm::kTiles:
      return "tiles";
  }
  return "unknown";
}

LinearForm LinearFormOf(Isa isa, const WeightFormat& weights, int64_t rows, int64_t /*k*/) {
  if (isa != Isa::kAmx || rows <= VectorRows(weights.type)) return LinearForm::kVectors;
  return LinearForm::kTiles;
}

}  // namespace baton
