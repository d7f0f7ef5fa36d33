#include "common/state_machine.h"

#include <algorithm>

#include "common/check.h"
#include "common/log.h"

namespace baton {

bool MachineTable::Allows(int from, int to) const {
  return std::any_of(transitions.begin(), transitions.end(),
                     [&](const TransitionRow& row) { return row.from == from && row.to == to; });
}

void CheckTransition(const MachineTable& table, int from, int to) {
  if (table.Allows(from, to)) return;
  LogError("%s: no transition from %s to %s", table.machine, table.states[from].name,
           table.states[to].name);
  BATON_CHECK(table.Allows(from, to));
}

void TransitionCounts::Add(const TransitionCounts& other) {
  for (const auto& [transition, count] : other.counts_) counts_[transition] += count;
}

uint64_t TransitionCounts::count(const MachineTable& table, const TransitionRow& row) const {
  const auto it = counts_.find({table.machine, row.from, row.to});
  return it == counts_.end() ? 0 : it->second;
}

}  // namespace baton
