// One run of the chaos rig: learn the answers undisturbed, start the cluster, break it under load,
// heal it, audit it, tell.
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
  uint64_t seed = 1;
  std::string log_folder;  // for the servers' logs when something is wrong
};

// Exit status: 0 when nothing was violated; 1 otherwise; 3 when this machine cannot run the profile
// (said loudly; nothing was shown then).
int RunChaos(const ChaosOptions& options);

}  // namespace baton
