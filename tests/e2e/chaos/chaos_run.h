// One run of the chaos rig: learns the answers without faults, starts the cluster, makes faults
// under load, heals them, audits the cluster and reports.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "tests/e2e/chaos/profile.h"

namespace baton {

struct ChaosOptions {
  Profile profile;
  std::string model;  // folder or random:<config.json>
  absl::Duration length = absl::Seconds(60);
  uint64_t seed = 1;       // of requests, clients and faults
  std::string log_folder;  // for the logs of the servers when something is wrong
};

// Returns the exit status: 0: no violation; 1: a violation; 3: this machine cannot run the profile,
// so nothing was tested (a clear line says so).
int RunChaos(const ChaosOptions& options);

}  // namespace baton
