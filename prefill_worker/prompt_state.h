// The states of one prompt of the PrefillScheduler, as a table; prompt_state.cc has their deadlines
// and transitions. Plain data.
#pragma once

#include "common/state_machine.h"

namespace baton {

enum class PromptState {
  kQueued,      // waits for its turn to send OPEN; without a handoff: to run
  kOpening,     // OPEN is out, the sink has promised nothing yet
  kPromised,    // waits for pages here and its first chunk
  kInflow,      // has pages; waits for the KV before its (next) slice, from the rank before it
  kRunning,     // some chunk was computed, its first token was not
  kCommitting,  // computed and committed; the handoff has not ended
  kEnding,      // given up: the handoff was cancelled and may still read its pages
  kEnded
};

const MachineTable& PromptTable();

}  // namespace baton
