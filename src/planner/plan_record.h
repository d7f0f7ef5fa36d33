// How far predictions of first tokens were off, and which relays were slower than one worker: by
// prompt length (powers of two) and number of ranks. A plain object, one thread.
#pragma once

#include <map>
#include <utility>

namespace baton {

class PlanRecord {
 public:
  // Seconds from the choice to the first token; alone: what one worker was predicted to take.
  void Add(int tokens, int ranks, double predicted, double actual, double alone);
  // Mean of |actual / predicted - 1|, the newest a quarter of it; of prompts like this one,
  // kFirstError before the first.
  double error(int tokens, int ranks) const;
  // Relays of this kind took longer than one worker alone would have, on such an average: none like
  // it for the next kBarredPrompts prompts of this length, or until Refitted.
  bool barred(int tokens, int ranks) const;
  void Refitted();  // the cost has changed: what was barred may be tried again

  static constexpr double kFirstError = 0.1;
  static constexpr int kBarredPrompts = 32;

 private:
  struct Bucket {
    double error = kFirstError;
    double of_alone = 0;  // mean of actual / alone; 0: none since it was barred last
    int barred = 0;       // prompts to come
  };
  using Key = std::pair<int, int>;  // log2 of tokens, ranks
  static Key KeyOf(int tokens, int ranks);
  std::map<Key, Bucket> buckets_;
};

}  // namespace baton
