// A link between two ranks of a relay, or to the decode worker, as the planner counts with it.
#pragma once

#include <limits>

namespace baton {

// The default is a link without cost.
struct ChainLink {
  double bytes_per_second = std::numeric_limits<double>::infinity();  // in each direction
  double latency = 0;                                                 // seconds per message
};

}  // namespace baton
