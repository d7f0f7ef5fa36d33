// Every state machine that walks a request or a handoff through its life.
#pragma once

#include <string>
#include <vector>

#include "common/state_machine.h"

namespace baton::sim {

std::vector<const MachineTable*> AllTables();

// How often each transition was taken, one line each, the rarest first; and the least of all.
std::string TransitionReport(const TransitionCounts& counts);
uint64_t LeastTaken(const TransitionCounts& counts);

}  // namespace baton::sim
