// How slow an emulated link is (paced_link.h).
#pragma once

#include <cstdint>

namespace baton {

struct LinkPace {
  double bytes_per_second = 0;  // of each direction; 0: as fast as the link is
  int64_t latency_us = 0;       // added once to every chunk and message sent
  bool is_set() const { return bytes_per_second > 0 || latency_us > 0; }
};

}  // namespace baton
