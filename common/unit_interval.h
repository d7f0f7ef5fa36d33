// A real number in [0, 1) from the upper 53 of 64 random bits, the precision of a double. Pure
// function, any thread.
#pragma once

#include <cstdint>

namespace baton {

inline double InUnitInterval(uint64_t random) {
  return static_cast<double>(random >> 11) * 0x1p-53;
}

}  // namespace baton
