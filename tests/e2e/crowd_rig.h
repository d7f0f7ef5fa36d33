// A real router process with a crowd of streams. Its workers are real but for their engine, which
// hashes (tests/support/hash_backend.h) and takes a fixed time for a step, so that nearly all work
// is the router's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "tests/e2e/served_baton.h"
#include "worker/worker.h"

namespace baton {

inline constexpr int kCrowdStreams = 256;

struct CrowdRig {
  // more: arguments of the router. is_ready: whether it is, of the router.
  static absl::StatusOr<std::unique_ptr<CrowdRig>> Start(
      std::chrono::microseconds step, std::vector<std::string> more = {},
      const std::function<bool(const ServedBaton&)>& is_ready = nullptr);

  std::unique_ptr<ServedBaton> router;
  std::vector<std::unique_ptr<Worker>> workers;  // of this process; they end first
};

// Processor time that a process has used.
double CpuSeconds(pid_t pid);

}  // namespace baton
