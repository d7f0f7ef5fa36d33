// Runs a process's role, the router with the HTTP front or one worker, until SIGTERM or SIGINT. The
// calling thread becomes the process's loop; no other thread exists before.
#pragma once

#include <string>

#include "common/ticket.h"
#include "proto/messages.h"
#include "server/config/config.h"
#include "server/config/config_reload.h"
#include "server/process/launch_spec.h"

namespace baton {

struct RoleConfig {
  Config config;  // model resolved
  ClusterKey key{};
  StartReporter reporter{-1};
  ConfigReload* reload = nullptr;  // of this process, set: read at SIGHUP
};

// Both return the exit status: 0 after an orderly end, 2 if the role cannot start; the log says
// why. A worker whose device is lost ends with kExitLost; one whose emulated device found faults,
// with kExitFindings.
inline constexpr int kExitLost = 3, kExitFindings = 4;
int RunRouter(const RoleConfig& process);
int RunWorker(const RoleConfig& process, Role role);

// Inputs for the size of a worker's KV pool if the user chose none: enough whole contexts for the
// role, within a share of the machine's memory.
struct KvSizing {
  int64_t page_bytes = 0;
  int pages_per_context = 0;  // of a sequence as long as the context
  int contexts = 0;           // whole contexts wanted
  int64_t memory_bytes = 0;   // the machine's, or the container's if smaller
  int n_workers = 1;          // workers that share the memory
};
// Returns bytes: at most a worker's share of a quarter of the memory, at least two pages.
int64_t ChooseKvBytes(const KvSizing& sizing);

}  // namespace baton
