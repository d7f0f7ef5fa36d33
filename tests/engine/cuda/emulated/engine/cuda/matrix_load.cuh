// Stands in for engine/cuda/matrix_load.cuh.
#pragma once

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline void LoadMatrices(uint32_t (&matrices)[4], uint32_t row_address) {
  EmulatedBlock::Now().LoadMatrices(matrices, row_address, false);
}

}  // namespace baton
