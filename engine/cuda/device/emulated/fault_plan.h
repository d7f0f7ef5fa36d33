// Plans what goes wrong on an emulated device, and when. Numbers count from 1; 0: never. Plain
// data.
#pragma once

#include <cstdint>

namespace baton {

struct FaultPlan {
  uint64_t allocation = 0;  // fails this allocation, of either memory
  uint64_t copy = 0;        // refuses this copy or fill
  uint64_t launch = 0;      // refuses this launch of a kernel or graph
  uint64_t lost_at = 0;     // loses the device where it would execute this operation
  uint64_t slow_from = 0;   // operations from this one on take slow_factor times as long
  int slow_factor = 1;
};

}  // namespace baton
