// A few threads for text work that would hold up the front: parsing, templates, tokenizing.
//
// Jobs wait in a queue per client, in order of arrival, and threads take one from each client in
// turn: a client waits for one job of each other client, however many these have. All queues
// together are bounded in jobs and in bytes of input; a client with jobs waiting may not have more
// than is left for all others, so that nobody fills the queue alone. A job may always wait alone,
// however long, so that none is refused for ever. Made and destroyed by one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton {

struct TextPoolOptions {
  int n_threads = 1;
  size_t max_jobs = 1024;              // that wait
  size_t max_bytes = size_t{1} << 28;  // of their input
};

class TextPool {
 public:
  explicit TextPool(const TextPoolOptions& options);
  ~TextPool();  // drops jobs that have not begun, and waits for the others
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  using JobId = uint64_t;
  using ClientId = uint64_t;  // HttpRequest::client
  struct Load {
    size_t jobs = 0, bytes = 0;  // that wait
    bool operator==(const Load&) const = default;
  };
  // Any thread. Has one of the pool's threads run the job. bytes: of its input. 0: there is no room
  // for the job.
  [[nodiscard]] JobId TryRun(ClientId client, size_t bytes, std::function<void()> job);
  // Any thread. Removes a job whose result is not wanted any more, which frees the job's place in
  // the queue. Does nothing for a job that has begun.
  void Drop(JobId id);
  Load load() const;  // any thread

 private:
  struct Job {
    JobId id = 0;
    size_t bytes = 0;
    std::function<void()> run{};
  };
  struct Queue {
    std::deque<Job> jobs{};  // ascending by id, never empty
    size_t bytes = 0;
  };

  void Run();
  bool HasRoom(ClientId client, size_t bytes) const;
  // Takes a job out of the queue of its client; the queue goes with its last job.
  Job Take(ClientId client, std::deque<Job>::iterator job);

  const TextPoolOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::flat_hash_map<ClientId, Queue> queues_;
  std::deque<ClientId> turns_;  // each client of queues_ once; the first one is next
  absl::flat_hash_map<JobId, ClientId> clients_;  // of each waiting job
  Load load_;
  JobId next_job_ = 1;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
