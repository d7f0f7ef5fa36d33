#include "bench/relay/simulated_workers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton {
namespace {

// Resources of a worker.
enum Part { kComputer, kOut, kIn, kParts };

// One worker's port for pushes: busy with sends, and with pushes in the order in which they are
// ready.
struct PushPort {
  struct Interval {
    double begin, end;
  };
  struct Waiting {
    double ready, seconds;
  };
  std::vector<Interval> busy;
  std::vector<Waiting> waiting;
  size_t next_busy = 0, next_waiting = 0;

  void Sort() {
    std::sort(busy.begin(), busy.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const Waiting& a, const Waiting& b) { return a.ready < b.ready; });
  }
  double ready() const { return waiting[next_waiting].ready; }

  // Returns the first moment from `time` on at which the first push can continue; infinite: no
  // push. `time` never falls from call to call.
  double NextStart(double time) {
    if (next_waiting == waiting.size()) return std::numeric_limits<double>::infinity();
    while (next_busy < busy.size() && busy[next_busy].end <= time) ++next_busy;
    double start = std::max(time, ready());
    for (size_t i = next_busy; i < busy.size() && busy[i].begin <= start; ++i) {
      start = std::max(start, busy[i].end);
    }
    return start;
  }

  // Runs the first push now, at most until a send begins. Returns the end.
  double Serve(double time) {
    Waiting& push = waiting[next_waiting];
    double until = time + push.seconds;
    if (next_busy < busy.size()) until = std::min(until, busy[next_busy].begin);
    push.seconds -= until - time;
    if (push.seconds <= kDone) ++next_waiting;
    return until;
  }

  static constexpr double kDone = 1e-12;  // seconds
};

}  // namespace

std::span<const int> SimulatedWorkers::Present(std::span<const int> after) {
  waits_for_.clear();
  for (const int task : after) {
    if (task >= 0) waits_for_.push_back(task);
  }
  return waits_for_;
}

int SimulatedWorkers::Compute(int worker, double seconds, std::span<const int> after) {
  const TaskGraph::Use use[] = {{kParts * worker + kComputer, seconds}};
  return graph_.Add(seconds, use, Present(after));
}

int SimulatedWorkers::Send(int from, int to, double bytes, std::span<const int> after) {
  const double seconds = bytes / link_.bytes_per_second;
  const TaskGraph::Use uses[] = {{kParts * from + kOut, seconds}, {kParts * to + kIn, seconds}};
  sent_bytes_[{from, to}] += bytes;
  const int task = graph_.Add(seconds, uses, Present(after), link_.latency);
  sends_.push_back({from, task, seconds});
  return task;
}

void SimulatedWorkers::Push(int from, double bytes, int after) {
  sent_bytes_[{from, n_}] += bytes;
  pushes_.push_back({from, after, bytes / link_.bytes_per_second});
}

SimulatedWorkers::Times SimulatedWorkers::Run() const {
  TaskGraph::Pace pace;
  if (noise_.is_set()) {
    pace = [this](int resource, double start, double seconds) {
      const int worker = resource / kParts;
      const bool is_quiet = resource % kParts == kComputer || worker == n_;
      return is_quiet ? start + seconds : noise_.Through(worker, start, seconds);
    };
  }
  Times times;
  std::vector<double> starts;
  times.ends = graph_.Run(pace, &starts);
  times.pushed = RunPushes(starts, times.ends);
  return times;
}

double SimulatedWorkers::RunPushes(const std::vector<double>& starts,
                                   const std::vector<double>& ends) const {
  std::vector<PushPort> ports(static_cast<size_t>(n_));
  for (const Sent& sent : sends_) {
    const double start = starts[static_cast<size_t>(sent.task)];
    ports[static_cast<size_t>(sent.from)].busy.push_back(
        {start, ends[static_cast<size_t>(sent.task)] - link_.latency});
  }
  for (const Sent& push : pushes_) {
    ports[static_cast<size_t>(push.from)].waiting.push_back(
        {ends[static_cast<size_t>(push.task)], push.seconds});
  }
  double time = 0, last = 0;
  for (PushPort& port : ports) port.Sort();
  while (true) {
    // Chooses the push that was ready first among those that can run now; if none can, the next
    // moment at which one might.
    PushPort* chosen = nullptr;
    double next = std::numeric_limits<double>::infinity();
    for (PushPort& port : ports) {
      const double start = port.NextStart(time);
      const bool is_now = start <= time;
      if (is_now && (chosen == nullptr || port.ready() < chosen->ready())) chosen = &port;
      if (!is_now) next = std::min(next, start);
    }
    if (chosen != nullptr) {
      last = time = chosen->Serve(time);
    } else if (std::isfinite(next)) {
      time = next;
    } else {
      return last + (pushes_.empty() ? 0 : link_.latency);
    }
  }
}

}  // namespace baton
