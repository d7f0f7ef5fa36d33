// The profiles of the chaos rig: requests, behaviour of clients, kinds and rates of faults.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/status.h"
#include "tests/e2e/chaos/requests.h"

namespace baton {

enum class FaultKind {
  kKill,       // kill -9 of a worker
  kPause,      // SIGSTOP, later SIGCONT
  kTerminate,  // SIGTERM of a worker
  kCutLink,    // a worker's network link goes down, later up
  kBlackHole,  // packets between two workers are dropped in both directions while the link stays up
  kOneWay,     // packets are dropped in one direction
  kSlowLink,   // a worker's link carries 1 Mbit/s
  kMute,       // a worker's control stream stays open and carries nothing
};
inline constexpr int kFaultKinds = 8;
const char* FaultName(FaultKind kind);
inline bool IsNetworkFault(FaultKind kind) { return kind >= FaultKind::kCutLink; }

struct Profile {
  std::string name;
  std::vector<std::string> server_args;  // in addition to model and number of workers
  CatalogueOptions catalogue;
  int n_clients = 10;
  // Shares of exchanges by behaviour.
  double leaving = 0;      // close the connection at a random moment
  double slow = 0;         // read slowly
  double not_reading = 0;  // stop reading for longer than the server waits
  double impossible = 0;   // ask for more than any pool holds; expect status 400 at once
  // Faults.
  absl::Duration mean_interval = absl::InfiniteDuration();
  double weights[kFaultKinds] = {};  // relative
  bool bounds_stalls = false;        // one kill at a time, so the bound of stall.h holds
  absl::Duration min_lasting = absl::Milliseconds(100), max_lasting = absl::Seconds(10);
  // Run.
  int64_t n_cancels = 0;  // the run ends after this number of closed connections; 0: by time
  bool needs_lab = false;
};

// Finds kill, pause, mixed, pools, cancel or network. Error: another name; the message lists them.
absl::StatusOr<Profile> FindProfile(const std::string& name);

}  // namespace baton
