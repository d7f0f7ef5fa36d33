// The worker's KV pool as the transfer room sees it.
#pragma once

#include "engine/kv/kv_pool.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

// Valid as long as the pool.
PoolView ViewOf(const KvPool& pool);

}  // namespace baton
