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
  // Geometric mean of actual / predicted; the newest has a weight of one quarter. For one worker it
  // begins with what one worker has for prompts of all lengths, for relays with kFirstRelay times
  // that of one worker; and it returns there by 1/8 with every prompt of the length that another
  // number of ranks computed: so relays that did not pay are tried again.
  double margin(int tokens, int ranks) const { return At(KeyOf(tokens, ranks)); }

  static constexpr double kFirstRelay = 1.1;

 private:
  using Key = std::pair<int, int>;  // log2 of tokens (0: of all lengths), ranks
  static Key KeyOf(int tokens, int ranks);
  double At(const Key& key) const;
  double FirstOf(const Key& key) const;
  std::map<Key, double> margins_;
};

}  // namespace baton
