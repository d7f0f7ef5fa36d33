// Workers of a simulated relay and their links, as a task graph: one computer and one full-duplex
// port each, first come first served. Counts the bytes of every link. Plain object, one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "bench/relay/task_graph.h"
#include "common/prefill_cost.h"
#include "lab/link_noise.h"
#include "planner/chain_link.h"

namespace baton {

// n workers; the decode worker has number n and only receives.
class SimulatedWorkers {
 public:
  SimulatedWorkers(int n, const ChainLink& link, const LinkNoise& noise)
      : n_(n), link_(link), noise_(noise), graph_(3 * (n + 1)) {}

  // Adds a computation. `after`: tasks, -1 for none. Returns the task.
  int Compute(int worker, double seconds, std::span<const int> after);
  // Adds a transfer from one worker's port to another's; the task ends when the bytes have landed.
  int Send(int from, int to, double bytes, std::span<const int> after);
  // Adds a push to the decode worker after a task, in the time that sends leave free on the port;
  // no task waits for a push.
  void Push(int from, double bytes, int after);

  struct Times {
    std::vector<double> ends;  // (tasks)
    double pushed = 0;         // time when the last push has landed
  };
  Times Run() const;
  // Bytes sent by each (from, to).
  const std::map<std::pair<int, int>, double>& sent_bytes() const { return sent_bytes_; }

 private:
  struct Sent {
    int from, task;
    double seconds;
  };
  double RunPushes(const std::vector<double>& starts, const std::vector<double>& ends) const;

  int n_;
  ChainLink link_;
  LinkNoise noise_;
  TaskGraph graph_;
  std::vector<int> waits_for_;
  std::vector<Sent> sends_, pushes_;
  std::map<std::pair<int, int>, double> sent_bytes_;

  std::span<const int> Present(std::span<const int> after);
};

}  // namespace baton
