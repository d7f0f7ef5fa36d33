// The state machines for the life of a request or a handoff, and counts of their transitions.
#pragma once

#include <string>
#include <vector>

#include "common/state_machine.h"

namespace baton::sim {

std::vector<const MachineTable*> AllTables();

// Returns the count of each transition, one line each, the rarest first.
std::string TransitionReport(const TransitionCounts& counts);
// Returns the transitions with a count below n; empty: none.
std::string TakenLessThan(uint64_t n, const TransitionCounts& counts);

}  // namespace baton::sim
