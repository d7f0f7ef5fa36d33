#include "server/api/text_pool.h"

#include <algorithm>
#include <utility>

namespace baton {

TextPool::TextPool(const TextPoolOptions& options) : options_(options) {
  for (int i = 0; i < options.n_threads; ++i) threads_.emplace_back([this] { Run(); });
}

TextPool::~TextPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queues_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TextPool::HasRoom(ClientId client, size_t bytes) const {
  if (load_.jobs == 0) return true;
  const size_t jobs_left = options_.max_jobs - load_.jobs;
  const size_t bytes_left = options_.max_bytes - std::min(options_.max_bytes, load_.bytes);
  if (jobs_left < 1 || bytes_left < bytes) return false;
  const auto queue = queues_.find(client);
  if (queue == queues_.end()) return true;
  return queue->second.jobs.size() < jobs_left && queue->second.bytes + bytes <= bytes_left;
}

TextPool::JobId TextPool::TryRun(ClientId client, size_t bytes, std::function<void()> job) {
  JobId id = 0;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || !HasRoom(client, bytes)) return 0;
    id = next_job_++;
    const auto [queue, is_new] = queues_.try_emplace(client);
    if (is_new) turns_.push_back(client);
    queue->second.jobs.push_back({.id = id, .bytes = bytes, .run = std::move(job)});
    queue->second.bytes += bytes;
    clients_.emplace(id, client);
    load_ = {load_.jobs + 1, load_.bytes + bytes};
  }
  changed_.notify_one();
  return id;
}

TextPool::Job TextPool::Take(ClientId client, std::deque<Job>::iterator job) {
  const auto queue = queues_.find(client);
  Job taken = std::move(*job);
  queue->second.jobs.erase(job);
  queue->second.bytes -= taken.bytes;
  load_ = {load_.jobs - 1, load_.bytes - taken.bytes};
  clients_.erase(taken.id);
  if (queue->second.jobs.empty()) {
    queues_.erase(queue);
    std::erase(turns_, client);
  }
  return taken;
}

void TextPool::Drop(JobId id) {
  Job dropped;  // destroyed outside the lock: it holds a whole request
  std::lock_guard lock(mutex_);
  const auto client = clients_.find(id);
  if (client == clients_.end()) return;
  std::deque<Job>& jobs = queues_.find(client->second)->second.jobs;
  const auto found = std::lower_bound(jobs.begin(), jobs.end(), id,
                                      [](const Job& job, JobId wanted) { return job.id < wanted; });
  dropped = Take(client->second, found);
}

TextPool::Load TextPool::load() const {
  std::lock_guard lock(mutex_);
  return load_;
}

void TextPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
    if (stopping_) return;
    const ClientId client = turns_.front();
    std::rotate(turns_.begin(), turns_.begin() + 1, turns_.end());
    std::deque<Job>& jobs = queues_.find(client)->second.jobs;
    {
      const Job job = Take(client, jobs.begin());
      lock.unlock();
      job.run();
    }
    lock.lock();
  }
}

}  // namespace baton
