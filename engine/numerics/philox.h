// Philox4x32-10: the counter-based random numbers of the sampler (Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The same counter and key always give the
// same four numbers; there is no state. Pure functions, any thread.
#pragma once

#include <array>
#include <cstdint>

#include "common/unit_interval.h"

namespace baton {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform number in [0, 1), 53 bits: number `draw` of the token at `position` of a request.
inline double UniformAt(uint64_t seed, int64_t position, uint32_t draw) {
  const uint64_t p = static_cast<uint64_t>(position);
  const PhiloxCounter r =
      Philox4x32({static_cast<uint32_t>(p), static_cast<uint32_t>(p >> 32), draw, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return InUnitInterval(uint64_t{r[0]} << 32 | r[1]);
}

}  // namespace baton
