// Chooses the kernels for a number of rows of a linear layer: the only place of this decision. The
// choice changes no bit. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/cpu/linear/weight_format.h"
#include "engine/cpu/machine/isa.h"

namespace baton {

enum class LinearForm {
  kVectors,      // vector registers (gemm_vector.h, gemm_integer.h)
  kTileStream,   // AMX: weights stream past the sums of few rows (gemm_tile_stream.h)
  kRowsInL2,     // AMX: rows stay in L2, weights pass (gemm_tile_rows_in_l2.h)
  kWeightsInL2,  // AMX: weights stay in L2, rows pass (gemm_tile_weights_in_l2.h)
};
inline constexpr int kLinearForms = 4;

std::string_view LinearFormName(LinearForm form);  // "vectors", "tile stream", ...

// The form for `rows` rows (at most one job's) times weights of k inputs.
LinearForm LinearFormOf(Isa isa, const WeightFormat& weights, int64_t rows, int64_t k);

}  // namespace baton
