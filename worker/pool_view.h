// The worker's KV pool as the transfer room sees it (kvtransfer/protocol/transfer_events.h).
#pragma once

#include "engine/kv/kv_pool.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

// Pure function. The view is valid as long as the pool.
PoolView ViewOf(const KvPool& pool);

}  // namespace baton
