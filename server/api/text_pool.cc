#include "server/api/text_pool.h"

#include <pthread.h>
#include <sys/resource.h>

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
    addresses_.clear();
    turns_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TextPool::HasRoom(const ClientId& client, size_t bytes) const {
  if (load_.jobs == 0) return true;
  Load left = {options_.max_jobs - std::min(options_.max_jobs, load_.jobs),
               options_.max_bytes - std::min(options_.max_bytes, load_.bytes)};
  const auto fits = [&](const Load& own) {
    return own.jobs < left.jobs && own.bytes + bytes <= left.bytes;
  };
  if (!fits({})) return false;
  const auto address = addresses_.find(client.address);
  if (address == addresses_.end()) return true;
  const auto& [queues, turns, load] = address->second;
  if (!fits(load)) return false;
  const auto queue = queues.find(client.key);
  if (queue == queues.end()) return true;
  left = {left.jobs - load.jobs, left.bytes - load.bytes};
  return fits({queue->second.jobs.size(), queue->second.bytes});
}

TextPool::JobId TextPool::TryRun(const ClientId& client, size_t bytes, std::function<void()> job) {
  JobId id = 0;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || !HasRoom(client, bytes)) return 0;
    id = next_job_++;
    const auto [address, is_new] = addresses_.try_emplace(client.address);
    if (is_new) turns_.push_back(client.address);
    auto& [queues, turns, load] = address->second;
    const auto [queue, is_new_key] = queues.try_emplace(client.key);
    if (is_new_key) turns.push_back(client.key);
    queue->second.jobs.push_back({.id = id, .bytes = bytes, .run = std::move(job)});
    queue->second.bytes += bytes;
    clients_.emplace(id, client);
    load = {load.jobs + 1, load.bytes + bytes};
    load_ = {load_.jobs + 1, load_.bytes + bytes};
  }
  changed_.notify_one();
  return id;
}

TextPool::Job TextPool::Take(const ClientId& client, std::deque<Job>::iterator job) {
  const auto address = addresses_.find(client.address);
  auto& [queues, turns, load] = address->second;
  const auto queue = queues.find(client.key);
  Job taken = std::move(*job);
  queue->second.jobs.erase(job);
  queue->second.bytes -= taken.bytes;
  load = {load.jobs - 1, load.bytes - taken.bytes};
  load_ = {load_.jobs - 1, load_.bytes - taken.bytes};
  clients_.erase(taken.id);
  if (queue->second.jobs.empty()) {
    queues.erase(queue);
    std::erase(turns, client.key);
  }
  if (load.jobs == 0) {
    addresses_.erase(address);
    std::erase(turns_, client.address);
  }
  return taken;
}

std::deque<TextPool::Job>& TextPool::JobsOf(const ClientId& client) {
  return addresses_.find(client.address)->second.queues.find(client.key)->second.jobs;
}

void TextPool::Drop(JobId id) {
  Job dropped;  // destroyed outside the lock: it holds a whole request
  std::lock_guard lock(mutex_);
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const ClientId client = found->second;
  std::deque<Job>& jobs = JobsOf(client);
  dropped =
      Take(client, std::lower_bound(jobs.begin(), jobs.end(), id,
                                    [](const Job& job, JobId wanted) { return job.id < wanted; }));
}

void TextPool::SetMaxJobs(size_t max_jobs) {
  std::lock_guard lock(mutex_);
  options_.max_jobs = max_jobs;
}

TextPool::Load TextPool::load() const {
  std::lock_guard lock(mutex_);
  return load_;
}

void TextPool::Run() {
  // Streams wait for the front thread, and one text may take a tenth of a second: where both want a
  // core, the front thread gets the larger share (of threads, nice is per thread in Linux).
  ::pthread_setname_np(::pthread_self(), "baton-text");
  const int own = ::getpriority(PRIO_PROCESS, 0);
  ::setpriority(PRIO_PROCESS, 0, std::min(own + kTextNice, 19));
  const auto next = [](std::deque<uint64_t>* turns) {
    std::rotate(turns->begin(), turns->begin() + 1, turns->end());
    return turns->back();
  };
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !turns_.empty(); });
    if (stopping_) return;
    ClientId client{.address = next(&turns_)};
    client.key = next(&addresses_.find(client.address)->second.turns);
    {
      const Job job = Take(client, JobsOf(client).begin());
      lock.unlock();
      job.run();
    }
    lock.lock();
  }
}

}  // namespace baton
