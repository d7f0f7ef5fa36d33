// Computes when tasks end that wait for each other and for resources: the event engine of simulated
// relays. A resource serves tasks one after another, in the order in which they become ready (ties:
// in the order of Add). Deterministic; one thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace baton {

class TaskGraph {
 public:
  // A resource that a task holds, from its start, for so many seconds.
  struct Use {
    int resource;
    double seconds;
  };

  // Noise: returns when a resource ends work that starts at `start` and was planned to take
  // `seconds`.
  using Pace = std::function<double(int resource, double start, double seconds)>;

  // Resources are numbered from 0 by the caller.
  explicit TaskGraph(int n_resources) : n_resources_(n_resources) {}
  // A task of `seconds` that starts when every task of `after` has ended and every resource is
  // free, and ends for those who wait for it `latency` later. Returns its number.
  int Add(double seconds, std::span<const Use> uses, std::span<const int> after,
          double latency = 0);
  // (tasks) when each ends. A task is as slow as the slowest resource it uses; no pace: all of them
  // work as planned. starts: when each started, if asked.
  std::vector<double> Run(const Pace& pace = nullptr, std::vector<double>* starts = nullptr) const;

 private:
  struct Task {
    double seconds, latency;
    std::vector<Use> uses;
    std::vector<int> next;
    int waits_for;
  };
  int n_resources_;
  std::vector<Task> tasks_;
};

}  // namespace baton
