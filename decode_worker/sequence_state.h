// The states of one sequence of the DecodeBatch, as a table.
#pragma once

#include "common/state_machine.h"

namespace baton {

enum class SequenceState {
  kExpected,  // the router named it; the KV is not here
  kOrphan,    // the KV came before the router's request
  kReady,     // request and KV are here; waits for a row
  kDecoding,  // has a row
  kEnded
};

const MachineTable& SequenceTable();

}  // namespace baton
