// The worker's KV pool as the transfer room sees it.
#pragma once

#include "engine/kv_pool.h"
#include "kvtransfer/transfer.h"

namespace baton {

// Valid as long as the pool.
PoolView ViewOf(const KvPool& pool);

}  // namespace baton
