// Facts that all objects of one TransferCore share and that stay the same, the link, and the
// counters. Owner: TransferCore, whose objects keep a pointer; link thread.
#pragma once

#include "kvtransfer/protocol/handoff_effects.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

// Status of what ends, or is refused, because this process ends.
inline absl::Status ShuttingDown() {
  return absl::UnavailableError("this worker is shutting down");
}

struct TransferSetup {
  const TransferOptions options;
  const TransferFacts facts;
  const PoolView pool;
  const HandoffLimits limits;  // of the options and the pool
  // Bounce slots per direction, for chunks whose bytes are not contiguous in the pool. Their memory
  // is used until the link is gone.
  const int32_t n_slots = 0;
  Link* const link = nullptr;
  TransferCounters counters{};
};

}  // namespace baton
