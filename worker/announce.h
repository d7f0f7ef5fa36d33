// Makes what a worker tells the router about itself when their stream begins. Pure functions, any
// thread.
#pragma once

#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "proto/messages.h"
#include "worker/worker_core.h"

namespace baton {

// Names one life of a worker: random, and ordered by role: decode workers below workers of both
// roles below prefill workers. That is the order in which a prefill takes pages of two pools
// (docs/SCHEDULING.md).
Incarnation MakeIncarnation(Role role, uint64_t random);

// All that engine, pool and options say. The shell adds what it knows alone: name, address, CPUs,
// the limit of its link.
WorkerAnnounce AnnounceOf(const WorkerFacts& facts, const WorkerCoreOptions& options,
                          const Backend& backend, const KvPool& pool);

}  // namespace baton
