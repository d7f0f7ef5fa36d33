// What a process does once it knows its role: runs the router with the HTTP front, or one worker,
// until it is told to stop. Returns the exit status. The thread that calls it becomes the
// process's loop; no other thread exists before.
#pragma once

#include <string>

#include "common/ticket.h"
#include "proto/messages.h"
#include "server/config/config.h"
#include "server/process/launch_spec.h"

namespace baton {

struct RoleConfig {
  Config config;  // model resolved
  ClusterKey key{};
  StartReporter reporter{-1};
};

int RunRouter(const RoleConfig& start);
int RunWorker(const RoleConfig& start, Role role);

// The room for KV of a worker that was told no number: enough for as many whole contexts as its
// role needs, within a share of the machine's memory.
struct KvSizing {
  int64_t page_bytes = 0;
  int pages_per_context = 0;
  int contexts = 0;          // whole contexts wanted
  int64_t memory_bytes = 0;  // of the machine
  int n_workers = 1;         // that share it
};
int64_t ChooseKvBytes(const KvSizing& wish);

}  // namespace baton
