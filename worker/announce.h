// Makes what a worker tells about itself at its start: to the router, and to the transfer room.
// Pure functions, any thread.
#pragma once

#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "kvtransfer/protocol/transfer_events.h"
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

// Facts for the transfer room of the announced worker.
TransferFacts TransferFactsOf(const WorkerAnnounce& announce, const ClusterKey& key);
// The worker's KV pool as the transfer room sees it. The view is valid as long as the pool.
PoolView ViewOf(const KvPool& pool);

}  // namespace baton
