// The states of one sequence of the DecodeBatch (engine thread), with deadlines and transitions as
// a table. The table is constant: any thread.
#pragma once

#include "common/state_machine.h"

namespace baton {

enum class SequenceState {
  kExpected,  // the router named it; the KV is not here
  kOrphan,    // the KV came before the router's request
  kReady,     // request and KV are here; waits for a row
  kDecoding,  // has a row
  kEnded      // reported and removed at once
};

const MachineTable& SequenceTable();

}  // namespace baton
