// What the processes of a cluster hold, and whether it is no more than before.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/e2e/chaos/cluster.h"
#include "tests/e2e/chaos/faults.h"

namespace baton {

struct DecodeReservations {
  Member member;
  bool alive = false;
  int n_threads = 0, n_descriptors = 0;
  int64_t rss_kb = 0;
};

// Waits until all workers are connected, nothing runs and no worker holds a page, a promise, a
// prompt or a row; returns what is still held after `limit`, a line each. Empty: all is quiet.
std::vector<std::string> AwaitQuiet(Cluster* cluster, absl::Duration limit);

std::vector<DecodeReservations> TakeReservations(Cluster* cluster);

struct GrowthLimits {
  int threads = 4, descriptors = 8;
  double rss_share = 0.1;
  int64_t rss_kb = 16 << 10;
};
// A line for each process that is gone or holds more than it, or the most of its role, held before.
std::vector<std::string> Growth(const std::vector<DecodeReservations>& before,
                                const std::vector<DecodeReservations>& after,
                                const GrowthLimits& limits);

// Ends of workers the log tells that no fault explains, and lines that nobody should have written.
std::vector<std::string> LogComplaints(const std::string& log,
                                       const std::vector<FaultRecord>& faults);

std::string ReservationsTable(const std::vector<DecodeReservations>& before,
                              const std::vector<DecodeReservations>& after);

}  // namespace baton
