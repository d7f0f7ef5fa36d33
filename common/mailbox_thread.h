// A thread that handles jobs one after the other, in the order in which they were posted, and
// sleeps on its mailbox in between.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/mailbox.h"

namespace baton {

template <typename Job>
class MailboxThread {
 public:
  // name: at most 15 characters. handle is called on the thread.
  MailboxThread(const char* name, size_t capacity, std::function<void(Job&)> handle)
      : handle_(std::move(handle)), jobs_(capacity), thread_([this] { Run(); }) {
    ::pthread_setname_np(thread_.native_handle(), name);
  }
  ~MailboxThread() {  // waits for the running job and drops the others
    stopping_ = true;
    jobs_.Close();
    thread_.join();
  }
  MailboxThread(const MailboxThread&) = delete;
  MailboxThread& operator=(const MailboxThread&) = delete;

  // Any thread. False: no room.
  bool TryPost(Job job) { return jobs_.TryPost(std::move(job)); }

 private:
  void Run() {
    std::vector<Job> jobs;
    while (jobs_.WaitAndDrain(&jobs)) {
      for (Job& job : jobs) {
        if (stopping_) return;
        handle_(job);
      }
      jobs.clear();
    }
  }

  const std::function<void(Job&)> handle_;
  Mailbox<Job> jobs_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace baton
