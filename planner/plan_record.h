// Records the error of predicted first-token times, and which relays were slower than one worker,
// by prompt length (powers of two) and number of ranks. If workers compute other prompts meanwhile,
// all prompts take longer than predicted (later shorter ones overtake them). Such prompts are
// ignored for the prediction error, and a relay then counts as slow only if it is slowed down more
// than prompts on one worker are (docs/PLANNER.md, record). A plain object, one thread.
#pragma once

#include <map>
#include <utility>

namespace baton {

class PlanRecord {
 public:
  // Seconds from the choice to the first token.
  struct Outcome {
    double predicted = 0, actual = 0;
    double alone = 0;         // prediction for one worker alone
    bool was_shared = false;  // the workers computed other prompts meanwhile
  };
  // Called when a prompt of `tokens` has its first token. predicted and alone are positive.
  void Add(int tokens, int ranks, const Outcome& outcome);
  // Prediction error: mean of |actual / predicted - 1| over prompts of this kind that had their
  // workers to themselves; the newest has a weight of one quarter. kFirstError before the first.
  double error(int tokens, int ranks) const;
  // Correction factor for predictions: mean of actual / predicted, at least 1, over the same
  // prompts and with the same weights as error(). 1 before the first.
  double slowness(int tokens, int ranks) const;
  // True while relays of this size and length are disabled because they were slower than a single
  // worker on average: their mean of actual / alone exceeded 1 and the mean of prompts of this
  // length on one worker. Lasts for kBarredPrompts prompts of this length, or until Refitted.
  bool barred(int tokens, int ranks) const;
  void Refitted();  // the cost has changed: barred relays may be tried again

  static constexpr double kFirstError = 0.1;
  static constexpr int kBarredPrompts = 32;

 private:
  struct Bucket {
    double error = kFirstError;
    double slowness = 1;
    double of_alone = 0;  // mean of actual / alone; 0: none (for relays: since they were barred)
    int barred = 0;       // number of prompts for which relays stay barred
  };
  using Key = std::pair<int, int>;  // log2 of tokens, ranks
  static Key KeyOf(int tokens, int ranks);
  std::map<Key, Bucket> buckets_;
};

}  // namespace baton
