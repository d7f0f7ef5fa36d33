// Which kernels serve the rows of a linear layer: the one place that says so. No bit depends on it.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/cpu/isa.h"
#include "engine/cpu/weight_format.h"

namespace baton {

enum class LinearForm {
  kVectors,  // vector registers (gemm_vector.h, gemm_integer.h)
  kTiles,    // AMX tiles
};
inline constexpr int kLinearForms = 2;

std::string_view LinearFormName(LinearForm form);  // "vectors", "tiles"

// Of `rows` rows, as many as one job takes, times weights of k inputs.
LinearForm LinearFormOf(Isa isa, const WeightFormat& weights, int64_t rows, int64_t k);

}  // namespace baton
