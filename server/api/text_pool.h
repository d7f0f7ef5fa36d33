// A few threads for text work that would hold up the front: parsing, templates, tokenizing.
//
// Jobs wait in a queue per client, in order of arrival, and threads take one from each address in
// turn, and there from each key in turn: whoever invents keys gets no more turns by them, and
// clients behind one proxy share its turns. All queues together are bounded in jobs and in bytes of
// input; an address with jobs waiting may not have more than is left for all others, nor a key more
// than is left for its address, so that nobody fills the queue alone. A job may always wait alone,
// however long, so that none is refused for ever. Its threads yield to the front thread (nice).
// Made and destroyed by one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/http/http_message.h"

namespace baton {

inline constexpr int kTextNice = 5;  // of text threads, beyond the nice value of the process

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
  struct Load {
    size_t jobs = 0, bytes = 0;  // that wait
    bool operator==(const Load&) const = default;
  };
  // Any thread. Has one of the pool's threads run the job. bytes: of its input. 0: there is no room
  // for the job.
  [[nodiscard]] JobId TryRun(const ClientId& client, size_t bytes, std::function<void()> job);
  // Any thread. Removes a job whose result is not wanted any more, which frees the job's place in
  // the queue. Does nothing for a job that has begun.
  void Drop(JobId id);
  Load load() const;                 // any thread
  void SetMaxJobs(size_t max_jobs);  // any thread; jobs that wait stay

 private:
  struct Job {
    JobId id = 0;
    size_t bytes = 0;
    std::function<void()> run{};
  };
  struct Queue {             // of one key
    std::deque<Job> jobs{};  // ascending by id, never empty
    size_t bytes = 0;
  };
  struct Address {
    absl::flat_hash_map<uint64_t, Queue> queues{};  // by key, never empty
    std::deque<uint64_t> turns{};                   // each key once; the first one is next
    Load load{};
  };

  void Run();
  bool HasRoom(const ClientId& client, size_t bytes) const;
  // Takes a job out of the queue of its client; queue and address go with their last job.
  Job Take(const ClientId& client, std::deque<Job>::iterator job);
  std::deque<Job>& JobsOf(const ClientId& client);  // of one that has some

  TextPoolOptions options_;  // guarded by mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::flat_hash_map<uint64_t, Address> addresses_;
  std::deque<uint64_t> turns_;                    // each address once; the first one is next
  absl::flat_hash_map<JobId, ClientId> clients_;  // of each waiting job
  Load load_;
  JobId next_job_ = 1;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
