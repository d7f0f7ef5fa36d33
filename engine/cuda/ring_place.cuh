// Where in a ring of stages a thread is. Device code only.
#pragma once

#include <cstdint>

namespace baton {

// The parity is that of the phase under way of a stage's barrier.
template <int kStages>
struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace baton
