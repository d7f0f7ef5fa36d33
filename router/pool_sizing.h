// Number of workers of each role that the load needs, for autoscalers: what requests ask for, by
// the costs that the workers have measured, over what one worker can do. Neither waiting requests
// nor workers that are there already come into it, so that the answer does not swing with its own
// effect. Part of the Router, on its thread. Times are monotonic, seconds are doubles.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/prefill_cost.h"
#include "common/step_cost.h"

namespace baton {

// A sum per second over the last `window` or so: what came longer ago counts exponentially less.
class RecentRate {
 public:
  explicit RecentRate(absl::Duration window) : window_(window) {}
  void Add(double amount, absl::Time now);
  double PerSecond(absl::Time now) const;

 private:
  absl::Duration window_;
  absl::Time began_ = absl::InfiniteFuture(), at_ = absl::InfinitePast();
  double sum_ = 0;  // as of at_
};

class PoolSizing {
 public:
  struct Options {
    absl::Duration window = absl::Minutes(1);
    double busy = 0.7;    // share of its time that a worker should work
    double spare = 0.15;  // so much less load must be there before there are fewer workers
    // Limit of a gap between tokens; infinite: a decode worker takes as many rows as it can.
    absl::Duration gap = absl::InfiniteDuration();
  };
  // A worker of the cluster; zeros: not known.
  struct Worker {
    PrefillCost prefill{};
    StepCost step{};
    int32_t max_batch = 0, pages_total = 0, page_tokens = 0;
  };

  explicit PoolSizing(const Options& options)
      : options_(options),
        requests_(options.window),
        prompts_(options.window),
        pairs_(options.window),
        ended_(options.window),
        generated_(options.window),
        contexts_(options.window) {}

  // A request is dispatched for the first time: prompt tokens to compute, behind cached ones.
  void OnRequest(double tokens, double pairs, absl::Time now);
  // A request has ended as it should, with so many tokens of prompt and answer.
  void OnEnded(int32_t n_prompt, int32_t n_generated, absl::Time now);
  // Whenever a worker has told something, with a typical one; it counts at most once a second.
  void Update(const Worker& worker, absl::Time now);

  void SetGap(absl::Duration gap) { options_.gap = gap; }  // counts from the next Update on

  // Workers as of the last Update, at least 1. 0: not known, because no cost is, because updates
  // have come for less than a window, or because no request has ended.
  int prefill() const { return prefill_; }
  int decode() const { return decode_; }

 private:
  double PrefillWorkers(const Worker& worker, absl::Time now) const;
  // Nothing where requests come and none has ended for long: nobody knows how long they get.
  std::optional<double> DecodeWorkers(const Worker& worker, absl::Time now) const;
  int Settled(double workers, int before) const;

  Options options_;
  RecentRate requests_, prompts_, pairs_;    // of requests that came: their count, tokens, pairs
  RecentRate ended_, generated_, contexts_;  // of ended ones: count, tokens, tokens of their KV
  bool has_ended_ = false;
  absl::Time watched_since_ = absl::InfiniteFuture(), next_update_ = absl::InfinitePast();
  int prefill_ = 0, decode_ = 0;
};

}  // namespace baton
