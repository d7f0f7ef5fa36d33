// How the ranks of a relay share a prompt, and which of them hand KV to the decode worker: by the
// closed form, and by what is predicted to be sooner. RelayRules may name another. Immutable; any
// thread.
#pragma once

#include <span>
#include <vector>

#include "planner/partition_table.h"
#include "planner/push_choice.h"

namespace baton {

class RelaySharing {
 public:
  virtual ~RelaySharing() = default;
  // Real-valued slices, as ClosedForm's; empty: so many ranks cannot share it.
  virtual std::vector<double> Slices(const PrefillCost& cost, const ChainLink& link, double tokens,
                                     double prefix, std::span<const double> speeds,
                                     double handed_on) const;
  // True if more rounds than slices need may be sooner.
  virtual bool may_add_rounds() const { return true; }
  virtual RelayPush Push(const PrefillCost& cost, const PushedChain& chain) const;
  // The table that slices come from, of one model; null: none.
  virtual const PartitionTable* table() const { return nullptr; }
};

}  // namespace baton
