// What a handoff state machine wants done, in order: messages for its peer, events for the owner.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtransfer/transfer.h"
#include "kvtransfer/wire.h"

namespace baton {

struct HandoffEffects {
  std::vector<wire::Message> messages;
  std::vector<TransferEvent> events;
  // Operations of a handoff that is over do not complete: only closing the connection ends them.
  bool close_connection = false;
};

// What the machines need to know of the options, in the units they use.
struct HandoffLimits {
  int64_t chunk_bytes = 0, window_bytes = 0;
  int64_t answer_timeout_us = 0;  // OPEN without PROMISE or NO_ROOM
  int64_t stall_timeout_us = 0;   // chunks or COMMIT without any acknowledgement
  bool withhold_acks = false;
};
inline constexpr int64_t kMaxChunkBytes = 64 << 20;
inline constexpr int64_t kCommitResendUs = 250'000;
inline constexpr int64_t kDrainTimeoutUs = 1'000'000;  // posted operations of an ended handoff
inline constexpr int kMaxTries = 4;                    // of one chunk whose CRC failed

}  // namespace baton
