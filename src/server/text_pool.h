// A few threads for text work that would hold up the front: parsing, templates, tokenizing. Jobs
// are run in order of arrival; the queue is bounded.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace baton {

class TextPool {
 public:
  TextPool(int n_threads, size_t max_queued);
  ~TextPool();  // jobs not begun are dropped
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  // Any thread. False: the queue is full.
  [[nodiscard]] bool TryRun(std::function<void()> job);

 private:
  void Run();

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
