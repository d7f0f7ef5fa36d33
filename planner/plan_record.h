// Margins of predicted first-token times: by how much prompts of a length (powers of two) that so
// many ranks computed took longer than predicted. Whatever the reason is (a fit that is off, other
// prompts meanwhile, links), it is in the mean, and the planner compares plans by predicted time
// times margin (docs/PLANNER.md, margin). A plain object, one thread.
#pragma once

#include <map>
#include <utility>

namespace baton {

class PlanRecord {
 public:
  // Called when a prompt of `tokens` has its first token. ratio: actual / predicted time to it,
  // from the choice on.
  void Add(int tokens, int ranks, double ratio);
  // Mean of actual / predicted; the newest has a weight of one quarter. Begins with 1 for one
  // worker and kFirstRelay for relays, and returns to that by 1/32 with every prompt of the length
  // that another number of ranks computed: so relays that did not pay are tried again.
  double margin(int tokens, int ranks) const;

  static constexpr double kFirstRelay = 1.1;

 private:
  using Key = std::pair<int, int>;  // log2 of tokens, ranks
  static Key KeyOf(int tokens, int ranks);
  double FirstOf(const Key& key) const;
  std::map<Key, double> margins_;
};

}  // namespace baton
