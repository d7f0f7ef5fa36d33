// A few threads for text work that would hold up the front: parsing, templates, tokenizing. Jobs
// are begun in order of arrival; the queue is bounded. Made and destroyed by one thread.
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
  ~TextPool();  // drops jobs that have not begun, and waits for the others
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  using JobId = uint64_t;
  // Any thread. Has one of the pool's threads run the job. 0: the queue is full.
  [[nodiscard]] JobId TryRun(std::function<void()> job);
  // Any thread. Removes a job whose result is not wanted any more, which frees the job's place in
  // the queue. Does nothing for a job that has begun.
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
