// State machines of requests and handoffs as tables: every state with the timer that bounds it and
// the action on its deadline, and every allowed transition. A machine keeps its state in a
// MachineState, which CHECKs each transition against its table, in production too; tests walk the
// tables, and the simulation counts transitions. Tables are constant; a MachineState belongs to its
// machine's owner.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>

namespace baton {

struct StateRow {
  std::string_view name;
  std::string_view deadline;     // timer that bounds the state; empty: final state
  std::string_view on_deadline;  // action when the timer expires
};
struct TransitionRow {
  int from = 0, to = 0;  // rows of `states`
};
// A row for values of the machine's enum.
template <typename State>
constexpr TransitionRow Move(State from, State to) {
  return {static_cast<int>(from), static_cast<int>(to)};
}
struct MachineTable {
  std::string_view machine;          // "handoff source"
  std::string_view owner;            // object that moves the machine, and its thread
  std::span<const StateRow> states;  // by the value of the machine's enum; the first is the initial
  std::span<const TransitionRow> transitions;

  bool Allows(int from, int to) const;
};

// Counts how often each transition was taken. Cores get a pointer from a test, else nullptr.
class TransitionCounts {
 public:
  void Add(const MachineTable& table, int from, int to) { ++counts_[{table.machine, from, to}]; }
  void Add(const TransitionCounts& other);
  uint64_t count(const MachineTable& table, const TransitionRow& transition) const;

 private:
  std::map<std::tuple<std::string_view, int, int>, uint64_t> counts_;
};

// State: an enum class with the values 0, 1, ... of the table's rows.
template <typename State>
class MachineState {
 public:
  // The table outlives the state; counts may be nullptr.
  MachineState(const MachineTable& table, TransitionCounts* counts)
      : table_(&table), counts_(counts) {}
  operator State() const { return static_cast<State>(state_); }
  // Moves to `to`. Assigning the current state has no effect.
  MachineState& operator=(State to) {
    Move(static_cast<int>(to));
    return *this;
  }

 private:
  void Move(int to);

  const MachineTable* table_;
  TransitionCounts* counts_;
  int state_ = 0;
};

// CHECKs that the table has the transition.
void CheckTransition(const MachineTable& table, int from, int to);

template <typename State>
void MachineState<State>::Move(int to) {
  if (to == state_) return;
  CheckTransition(*table_, state_, to);
  if (counts_ != nullptr) counts_->Add(*table_, state_, to);
  state_ = to;
}

}  // namespace baton
