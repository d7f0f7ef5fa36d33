// What a process of the relay benchmark has for all its prompts.
#pragma once

#include <memory>

#include "bench/rank_orders.h"
#include "engine/backend.h"
#include "engine/kv_pool.h"
#include "kvtransfer/transfer.h"

namespace baton {

struct RankParts {
  RankStart start;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<Transfer> transfer;
};

}  // namespace baton
