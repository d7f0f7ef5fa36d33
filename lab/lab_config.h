// Section lab of the configuration: what exists for comparisons and experiments only. The options
// of the rooms know nothing of it; the processes compose it around them. Plain data, set at the
// start of the process by one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/settings.h"
#include "engine/step/engine_lab.h"
#include "lab/relay_lab.h"

namespace baton {

struct LabConfig {
  // An emulated link: bounds each worker's port, in each direction.
  struct Link {
    int64_t bytes_per_second = 0;                   // 0 = as fast as the link is
    absl::Duration latency = absl::ZeroDuration();  // added to what the link carries
    int64_t falls_after = 0;  // bytes that come in, then it carries a hundredth; 0 = never
  };

  // An emulated device, which computes by the CPU's engine (EmulatedEngine).
  struct Device {
    bool is_emulated = false;
    int depth = 2;            // steps under way at most
    bool uses_graphs = true;  // false: steps are launched kernel by kernel, without padding
    uint64_t seed = 1;        // of the order and the times of what it executes
    uint64_t lost_at = 0;     // it is lost at this operation; 0 = never
    int64_t memory = 0;       // bytes; 0 = what its engine needs with the worker's kv_memory
  };

  int relay_min_ranks = 1;  // RelayRules::min_ranks
  RelayLab relay;           // its table is read at start from the file partition_table
  std::string partition_table;
  EngineLab engine;
  bool streams = true;       // false: StepLimits::slice_keys is 0
  bool cuts_through = true;  // false: WholePlanes
  Link link;
  Device device;
};

// Declares lab.*. `lab` must outlive `settings`.
void DeclareLab(LabConfig* lab, Settings* settings);

}  // namespace baton
