// A few threads for text work that would hold up the front: parsing, templates, tokenizing. Jobs
// are run in order of arrival; the queue is bounded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace baton {

class TextPool {
 public:
  TextPool(int n_threads, size_t max_queued);
  ~TextPool();  // jobs not begun are dropped
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  using JobId = uint64_t;
  // Any thread. 0: the queue is full.
  [[nodiscard]] JobId TryRun(std::function<void()> job);
  // Any thread. Nobody wants it any more: it is not run, and its place is free. Does nothing for
  // one that has begun.
  void Drop(JobId id);

 private:
  void Run();

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<JobId, std::function<void()>>> jobs_;
  JobId next_job_ = 1;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
