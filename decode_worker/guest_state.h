// The states of one guest of the DecodeBatch, as a table.
#pragma once

#include "common/state_machine.h"

namespace baton {

enum class GuestState {
  kExpected,  // the router named it; its KV is not here
  kOrphan,    // its KV came before the router's word
  kReady,     // both are here; waits for a row
  kDecoding,  // has a row
  kEnded
};

const MachineTable& GuestTable();

}  // namespace baton
