// Output of a handoff state machine, in order: messages for its peer, events for the owner; and the
// machine's limits, taken from the options. Plain data of the link thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/state_machine.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "kvtransfer/protocol/wire.h"

namespace baton {

struct HandoffEffects {
  std::vector<wire::Message> messages;
  std::vector<TransferEvent> events;
  // Operations of an ended handoff may never complete: only closing the connection ends them.
  bool close_connection = false;
  // For counters: the handoff continues over a new connection, and kept_chunks of its chunks need
  // not be sent again.
  bool resumed = false;
  uint32_t kept_chunks = 0;
};

// Limits of the machines, in the units that the machines use.
struct HandoffLimits {
  int64_t chunk_bytes = 0, window_bytes = 0;
  int64_t answer_timeout_us = 0;            // OPEN without PROMISE or NO_ROOM
  int64_t room_timeout_us = 0;              // NO_ROOM without PROMISE
  int64_t stall_timeout_us = 0;             // chunks or COMMIT without any acknowledgement
  int64_t idle_timeout_us = 0;              // promised, and neither chunks nor COMMIT
  int64_t reconnect_timeout_us = 0;         // without a connection
  TransitionCounts* transitions = nullptr;  // outlives the machines; null: nothing is counted
};
// Bound of chunk_bytes.
inline constexpr int64_t kMaxChunkBytes = 64 << 20;
// Time between two COMMITs while no answer arrives.
inline constexpr int64_t kCommitResendUs = 250'000;
inline constexpr int64_t kDrainTimeoutUs = 1'000'000;  // posted operations of an ended handoff
inline constexpr int kMaxTries = 4;                    // tries of one chunk whose CRC failed
// Connections tried in a row without progress of the handoff: the first at once, each next one
// after a doubled pause; 0.8 s in total if no process listens any more.
inline constexpr int kMaxConnects = 7;
inline constexpr int64_t kFirstPauseUs = 25'000;

}  // namespace baton
