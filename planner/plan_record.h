// How far predictions of first tokens were off, and which relays were slower than one worker: by
// prompt length (powers of two) and number of ranks. Where workers have other prompts beside, all
// prompts take longer than predicted (shorter ones that come later pass them): that says nothing of
// the prediction's error, and relays are slow only if they are slower by more than prompts of one
// worker. A plain object, one thread.
#pragma once

#include <map>
#include <utility>

namespace baton {

class PlanRecord {
 public:
  // Seconds from the choice to the first token.
  struct Outcome {
    double predicted = 0, actual = 0;
    double alone = 0;         // what one worker was predicted to take
    bool was_shared = false;  // its workers had other prompts meanwhile
  };
  void Add(int tokens, int ranks, const Outcome& outcome);
  // Mean of |actual / predicted - 1|, the newest a quarter of it, of prompts like this one that had
  // their workers to themselves; kFirstError before the first.
  double error(int tokens, int ranks) const;
  // What predictions of such prompts are to be multiplied with: relays that had their workers to
  // themselves took so much longer, on such an average; 1 before the first.
  double slowness(int tokens, int ranks) const;
  // Relays of this kind took longer, in units of what one worker was predicted to take and on such
  // an average, than prompts of this length on one worker, or than predicted if those were quicker:
  // none like it for the next kBarredPrompts prompts of this length, or until Refitted.
  bool barred(int tokens, int ranks) const;
  void Refitted();  // the cost has changed: what was barred may be tried again

  static constexpr double kFirstError = 0.1;
  static constexpr int kBarredPrompts = 32;

 private:
  struct Bucket {
    double error = kFirstError;
    double slowness = 1;
    double of_alone = 0;  // mean of actual / alone; 0: none, of relays since they were barred
    int barred = 0;       // prompts to come
  };
  using Key = std::pair<int, int>;  // log2 of tokens, ranks
  static Key KeyOf(int tokens, int ranks);
  std::map<Key, Bucket> buckets_;
};

}  // namespace baton
