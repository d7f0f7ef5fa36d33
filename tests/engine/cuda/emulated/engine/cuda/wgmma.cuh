// Stands in for engine/cuda/wgmma.cuh.
#pragma once

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline void WarpgroupFence() { EmulatedBlock::Now().WarpgroupFence(); }
inline void WarpgroupCommit() { EmulatedBlock::Now().WarpgroupCommit(); }
template <int kGroups>
void WarpgroupWait() {
  EmulatedBlock::Now().WarpgroupWait(kGroups);
}

template <int kN>
struct Wgmma {
  static void Add(float (&d)[kN / 2], uint64_t a, uint64_t b) {
    EmulatedBlock::Now().Wgmma(kN, d, a, b);
  }
};

}  // namespace baton
