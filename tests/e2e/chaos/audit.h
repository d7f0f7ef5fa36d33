// Resources that the processes of a cluster hold, and checks that they do not grow.
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
// prompt or a row. Returns one line per resource still held after `limit`; empty: all is quiet.
std::vector<std::string> AwaitQuiet(Cluster* cluster, absl::Duration limit);

std::vector<DecodeReservations> TakeReservations(Cluster* cluster);

struct GrowthLimits {
  int threads = 4, descriptors = 8;
  double rss_share = 0.1;
  int64_t rss_kb = 16 << 10;
};
// Returns a line for each process that has ended or holds more than before (or than the max of its
// role before).
std::vector<std::string> Growth(const std::vector<DecodeReservations>& before,
                                const std::vector<DecodeReservations>& after,
                                const GrowthLimits& limits);

// Returns ends of workers in the log that no fault explains, and unexpected lines.
std::vector<std::string> LogComplaints(const std::string& log,
                                       const std::vector<FaultRecord>& faults);

std::string ReservationsTable(const std::vector<DecodeReservations>& before,
                              const std::vector<DecodeReservations>& after);

}  // namespace baton
