// Stands in for engine/cuda/mma.cuh.
#pragma once

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline void MmaAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  EmulatedBlock::Now().Mma(d, a, b);
}

}  // namespace baton
