// Speed of the link from a worker to one receiver of its KV, as the worker measured it. Plain data.
#pragma once

#include <cstdint>

#include "common/ids.h"

namespace baton {

struct LinkRate {
  Incarnation peer = 0;
  double bytes_per_second = 0;  // at least 1
  int64_t round_trip_us = 0;    // of a message and its answer on an idle link; 0: unknown
  bool operator==(const LinkRate&) const = default;
};

}  // namespace baton
