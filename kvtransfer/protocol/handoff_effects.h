// Output of a handoff state machine for its peer, in order, and constants of the machines. Plain
// data of the link thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtransfer/protocol/wire.h"

namespace baton {

struct HandoffEffects {
  std::vector<wire::Message> messages;
  // Operations of an ended handoff may never complete: only closing the connection ends them.
  bool close_connection = false;
};

// Time between two COMMITs while no answer arrives.
inline constexpr int64_t kCommitResendUs = 250'000;
inline constexpr int64_t kDrainTimeoutUs = 1'000'000;  // posted operations of an ended handoff
inline constexpr int kMaxTries = 4;                    // tries of one chunk whose CRC failed
// Connections tried in a row without progress of the handoff: the first at once, each next one
// after a doubled pause; 0.8 s in total if no process listens any more.
inline constexpr int kMaxConnects = 7;
inline constexpr int64_t kFirstPauseUs = 25'000;

}  // namespace baton
