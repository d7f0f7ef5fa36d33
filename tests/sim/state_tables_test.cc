// Walks the tables of all state machines: in every state a request or handoff has an owner and a
// timer, the end is reachable, and no state is unused.
#include <algorithm>
#include <set>

#include "tests/sim/tables.h"

#include <catch2/catch.hpp>

namespace baton::sim {
namespace {

std::set<int> Reachable(const MachineTable& table, int from) {
  std::set<int> reached = {from};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const TransitionRow& row : table.transitions)
      if (reached.contains(row.from)) reached.insert(row.to);
  }
  return reached;
}

TEST_CASE("every state has an owner, a timer and a way to the end") {
  std::set<std::string> machines;
  for (const MachineTable* table : AllTables()) {
    INFO(table->machine);
    CHECK(machines.insert(std::string(table->machine)).second);
    CHECK_FALSE(table->owner.empty());
    const auto n_states = static_cast<int>(table->states.size());
    const auto is_last = [table](int state) { return table->states[state].deadline.empty(); };
    CHECK(Reachable(*table, 0).size() == table->states.size());
    for (int state = 0; state < n_states; ++state) {
      INFO(table->states[state].name);
      CHECK_FALSE(table->states[state].name.empty());
      CHECK(table->states[state].on_deadline.empty() == is_last(state));
      const std::set<int> later = Reachable(*table, state);
      CHECK((later.size() == 1) == is_last(state));
      CHECK(std::any_of(later.begin(), later.end(), is_last));
    }
  }
}

TEST_CASE("tables name each state and transition once") {
  for (const MachineTable* table : AllTables()) {
    INFO(table->machine);
    std::set<std::string> names;
    for (const StateRow& state : table->states) CHECK(names.insert(std::string(state.name)).second);
    std::set<std::pair<int, int>> transitions;
    for (const TransitionRow& row : table->transitions) {
      CHECK(row.from != row.to);
      CHECK(row.to < static_cast<int>(table->states.size()));
      CHECK(transitions.emplace(row.from, row.to).second);
    }
  }
}

}  // namespace
}  // namespace baton::sim
