// The only way for threads to exchange data: a bounded queue into one consumer thread. Producers on
// any thread TryPost; the consumer drains in batches. A full mailbox is an answer, never a wait.
//
// The consumer sleeps in its own way (condition variable, eventfd, Asio), so the mailbox takes a
// wake function, called by the producer's thread, outside the lock, when the queue turns from empty
// to not empty, and by Close: the consumer drains until empty before it sleeps again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/check.h"

namespace baton {

template <typename Event>
class Mailbox {
 public:
  // capacity: in events. Empty wake: the consumer uses WaitAndDrain.
  explicit Mailbox(size_t capacity, std::function<void()> wake = nullptr)
      : capacity_(capacity), wake_(std::move(wake)) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Any thread. False: full or closed, and `event` was not consumed.
  [[nodiscard]] bool TryPost(Event&& event) {
    bool was_empty = false;
    {
      std::lock_guard lock(mutex_);
      if (closed_ || events_.size() >= capacity_) return false;
      was_empty = events_.empty();
      events_.push_back(std::move(event));
    }
    if (was_empty) Wake();
    return true;
  }

  // Consumer only. Moves all events to the end of *out; false if there were none.
  bool Drain(std::vector<Event>* out) {
    std::lock_guard lock(mutex_);
    return DrainLocked(out);
  }

  // Consumer only. Sleeps until an event or Close, then drains. False: closed and empty.
  bool WaitAndDrain(std::vector<Event>* out) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !events_.empty(); });
    return DrainLocked(out);
  }

  // WaitAndDrain with a timeout. False: no event came (or closed and empty).
  bool WaitAndDrain(std::vector<Event>* out, absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                      [this] { return closed_ || !events_.empty(); });
    return DrainLocked(out);
  }

  // Any thread. Later posts are refused; the consumer still gets what is queued.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    Wake();
  }

 private:
  bool DrainLocked(std::vector<Event>* out) {
    if (events_.empty()) return false;
    if (out->empty()) {
      out->swap(events_);  // keeps both capacities: no allocation in the steady state
    } else {
      for (Event& event : events_) out->push_back(std::move(event));
      events_.clear();
    }
    return true;
  }
  void Wake() {
    changed_.notify_one();
    if (wake_) wake_();
  }

  const size_t capacity_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  bool closed_ = false;
};

}  // namespace baton
