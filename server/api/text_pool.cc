#include "server/api/text_pool.h"

#include <algorithm>

namespace baton {

TextPool::TextPool(int n_threads, size_t max_queued) : max_queued_(max_queued) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { Run(); });
}

TextPool::~TextPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

TextPool::JobId TextPool::TryRun(std::function<void()> job) {
  JobId id = 0;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || jobs_.size() >= max_queued_) return 0;
    id = next_job_++;
    jobs_.emplace_back(id, std::move(job));
  }
  changed_.notify_one();
  return id;
}

void TextPool::Drop(JobId id) {
  std::function<void()> dropped;  // destroyed outside the lock: it holds a whole request
  std::lock_guard lock(mutex_);
  const auto found =
      std::lower_bound(jobs_.begin(), jobs_.end(), id,
                       [](const auto& job, JobId wanted) { return job.first < wanted; });
  if (found == jobs_.end() || found->first != id) return;
  dropped = std::move(found->second);
  jobs_.erase(found);
}

void TextPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const std::function<void()> job = std::move(jobs_.front().second);
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace baton
