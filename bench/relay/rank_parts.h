// Parts that a process of the relay benchmark keeps for all its prompts.
#pragma once

#include <memory>

#include "bench/relay/rank_orders.h"
#include "engine/cpu/rival_slices.h"
#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "kvtransfer/transfer.h"

namespace baton {

struct RankParts {
  RankStart start;
  std::unique_ptr<Backend> backend;
  RivalSlices* rivals = nullptr;  // of the backend; null: not supported
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<Transfer> transfer;
};

}  // namespace baton
