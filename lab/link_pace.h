// Says how slow an emulated link is (paced_link.h). Plain data.
#pragma once

#include <cstdint>

#include "lab/link_noise.h"

namespace baton {

struct LinkPace {
  double bytes_per_second = 0;  // in each direction; 0: as fast as the link is
  int64_t latency_us = 0;       // added once to every chunk and message sent
  // Other traffic on the port of this end, and this end's number among the workers of the noise.
  LinkNoise noise = {};
  int worker = 0;
  // Once so many bytes have come in, later ones come at a hundredth of the rate; 0: never.
  int64_t falls_after = 0;

  bool is_set() const { return bytes_per_second > 0 || latency_us > 0; }
};

}  // namespace baton
