// How many workers prefill a prompt: the number with the earliest first token by what is predicted,
// queues included (relay reference 3.9). One worker alone is always a candidate, and a relay is
// chosen only when it wins by more than predictions of its kind were wrong by. Plain objects, one
// thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "planner/prefill_cost.h"

namespace baton {

struct OfferedWorker {
  double speed = 1;                                   // 1 = what the cost says
  double seconds = 0;                                 // until it could begin
  uint64_t place = 0;                                 // ranks stand in ascending order of it
  ChainLink link{};                                   // that it sends over
  int most_tokens = std::numeric_limits<int>::max();  // of its slice
};

struct Degree {
  std::vector<int> ranks;   // which of the workers offered; the first slice's first
  std::vector<int> slices;  // (ranks) tokens
  double seconds = 0;       // from now to the first token
  double alone = 0;         // the same of the best worker alone
};

// How far predictions of relays were off, by prompt length and number of ranks.
class PlanRecord {
 public:
  // Seconds from now to the first token; alone: what one worker was predicted to take.
  void Add(int tokens, int ranks, double predicted, double actual, double alone);
  // Mean of |actual / predicted - 1|; of prompts like this one, kFirstError before the first.
  double error(int tokens, int ranks) const;
  // The last one took longer than one worker alone would have: none like it until Refitted.
  bool barred(int tokens, int ranks) const;
  void Refitted();  // the cost has changed: what was barred may be tried again

  static constexpr double kFirstError = 0.1;

 private:
  struct Bucket {
    double error = kFirstError;
    bool barred = false;
  };
  using Key = std::pair<int, int>;  // log2 of tokens, ranks
  static Key KeyOf(int tokens, int ranks);
  std::map<Key, Bucket> buckets_;
};

struct DegreeRequest {
  int tokens = 0;  // new ones
  int prefix = 0;  // cached on every rank
  int page_tokens = 64;
  int max_ranks = 1;
  int min_ranks = 1;  // more than one: a relay wherever one is possible, whatever is predicted
  int must = -1;  // this worker is one of the ranks, and the one alone; -1: any
  // Prompts waiting per worker: what a relay costs in all, beyond one worker's work, delays them.
  double waiting = 0;
};

// offered is not empty. Ranks are those that could begin soonest, of equals the earlier ones.
Degree ChooseDegree(const PrefillCost& cost, const PlanRecord& record,
                    std::span<const OfferedWorker> offered, const DegreeRequest& request);

}  // namespace baton
