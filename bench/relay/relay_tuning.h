// `baton tune MODEL`: what prefill costs this machine and how ranks should share prompts, as a file
// for routers (planner/partition_table.h). Slices of the model are timed through the engine on one
// process; partitions are searched on a simulation with the constants fitted to them and, where
// asked, improved by real runs. One thread.
#pragma once

#include <string>
#include <vector>

#include "bench/relay/cost_measurement.h"
#include "bench/relay/relay_rig.h"
#include "planner/partition_table.h"

namespace baton {

struct RelayTuningOptions {
  RelayRigOptions rig;  // its model, threads_per_rank, isa, ...
  std::vector<int> ranks = {2, 3, 4};
  std::vector<int> tokens = {1024, 2048, 4096};
  double link = 1e9;     // bytes/s per direction that the partitions are for
  int rounds = 2;        // of each timing; the fastest counts
  bool measure = false;  // improves partitions by real runs on this machine's loopback
  std::string out;       // a file
};

struct RelayTuned {
  PartitionTable table;
  MeasuredCost cost;
};

absl::StatusOr<RelayTuned> TuneRelay(const RelayTuningOptions& options);
// Writes the file and prints its contents.
absl::Status RunRelayTuning(const RelayTuningOptions& options);

}  // namespace baton
