#include "bench/relay/task_graph.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "common/check.h"

namespace baton {

int TaskGraph::Add(double seconds, std::span<const Use> uses, std::span<const int> after,
                   double latency) {
  const int number = static_cast<int>(tasks_.size());
  for (const Use& use : uses) BATON_CHECK(use.resource >= 0 && use.resource < n_resources_);
  for (const int before : after) {
    BATON_CHECK(before >= 0 && before < number);
    tasks_[static_cast<size_t>(before)].next.push_back(number);
  }
  tasks_.push_back(
      {seconds, latency, {uses.begin(), uses.end()}, {}, static_cast<int>(after.size())});
  return number;
}

std::vector<double> TaskGraph::Run(const Pace& pace, std::vector<double>* starts) const {
  using Ready = std::pair<double, int>;  // time, task
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  std::vector<int> waits_for;
  std::vector<double> begin(tasks_.size(), 0.0), end(tasks_.size(), 0.0);
  std::vector<double> free_at(static_cast<size_t>(n_resources_), 0.0);
  for (const Task& task : tasks_) {
    if (task.waits_for == 0) ready.emplace(0.0, static_cast<int>(waits_for.size()));
    waits_for.push_back(task.waits_for);
  }
  if (starts != nullptr) starts->assign(tasks_.size(), 0.0);
  while (!ready.empty()) {
    auto [time, number] = ready.top();
    ready.pop();
    const Task& task = tasks_[static_cast<size_t>(number)];
    for (const Use& use : task.uses) {
      time = std::max(time, free_at[static_cast<size_t>(use.resource)]);
    }
    if (starts != nullptr) (*starts)[static_cast<size_t>(number)] = time;
    double longer = 1;
    for (const Use& use : task.uses) {
      if (!pace || use.seconds <= 0) continue;
      longer = std::max(longer, (pace(use.resource, time, use.seconds) - time) / use.seconds);
    }
    for (const Use& use : task.uses) {
      free_at[static_cast<size_t>(use.resource)] = time + use.seconds * longer;
    }
    end[static_cast<size_t>(number)] = time + task.seconds * longer + task.latency;
    for (const int next : task.next) {
      double& earliest = begin[static_cast<size_t>(next)];
      earliest = std::max(earliest, end[static_cast<size_t>(number)]);
      if (--waits_for[static_cast<size_t>(next)] == 0) ready.emplace(earliest, next);
    }
  }
  return end;
}

}  // namespace baton
