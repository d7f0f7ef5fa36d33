// Things that all objects of one TransferCore share: facts that stay the same, the link, the copier
// of cells, counters, events for the engine. Owner: TransferCore, whose objects keep a pointer;
// link thread.
#pragma once

#include <memory>
#include <vector>

#include "kvtransfer/protocol/cell_copier.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

// Status of what ends, or is refused, because this process ends.
inline absl::Status ShuttingDown() {
  return absl::UnavailableError("this worker is shutting down");
}

struct TransferSetup {
  const TransferOptions options;  // fit the pool, and slab_slots is not 0
  const TransferFacts facts;
  const PoolView pool;
  Link* const link = nullptr;
  const std::unique_ptr<CellCopier> copier{};
  TransferCounters counters{};
  std::vector<TransferEvent> events{};  // in order; emitted at the end of a turn
  bool shutting_down = false;           // no new connection, handoff or inflow is taken
};

}  // namespace baton
