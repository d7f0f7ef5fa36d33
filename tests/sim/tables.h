// Every state machine that walks a request or a handoff through its life.
#pragma once

#include <string>
#include <vector>

#include "common/state_machine.h"

namespace baton::sim {

std::vector<const MachineTable*> AllTables();

// How often each transition was taken, one line each, the rarest first.
std::string TransitionReport(const TransitionCounts& counts);
// Those of them that were taken less than n times; empty: none.
std::string TakenLessThan(uint64_t n, const TransitionCounts& counts);

}  // namespace baton::sim
