// Streams, events and graphs of HostCuda (host_cuda.h). At once: an operation is executed before
// the call that submits it returns. Late: streams are queues, whose heads are executed in an order
// that a seed draws among all that streams and events allow: when the test says so, when a host
// thread waits, now and then when one calls (how often depends on the seed), or by a thread.
//
// Late, a copy's target is full of poison from the moment at which the copy may begin, and its
// source must not change from then on; memory in use is not freed. What is found is in reports().
//
// Any thread; one at a time executes.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"

namespace baton {

class HostStreams {
 public:
  static constexpr int32_t kNotCaptured = 900;  // cudaErrorStreamCaptureUnsupported
  static constexpr int32_t kLost = 719;         // cudaErrorLaunchFailure
  static constexpr int kPoison = 0xdb;

  struct Operation {
    std::function<void()> run{};  // null: a record or a wait
    // Copies and fills have these.
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    int64_t bytes = 0;
    std::vector<const void*> uses{};  // memory that a kernel touches, by any address in it
    bool is_call = false;             // of Notify
    std::shared_ptr<bool> reaches{};  // record of an event
    std::shared_ptr<const bool> awaits{};
    bool is_ready = false;  // and what the source was then
    size_t digest = 0;
  };
  struct Stream {
    std::deque<Operation> queue{};
    std::optional<std::vector<Operation>> captured{};
  };
  struct Event {
    std::shared_ptr<bool> latest{};  // record; null: none yet, which counts as reached
  };
  struct Graph {
    std::vector<Operation> nodes{};
  };

  // seed 0: at once.
  explicit HostStreams(uint64_t seed) : is_late_(seed != 0), pace_(seed % 4), random_(seed) {}

  bool is_late() const { return is_late_; }
  bool is_lost() const { return Locked()->is_lost_; }
  std::vector<std::string> reports() const { return Locked()->reports_; }
  void Report(std::string what) {
    const std::lock_guard lock(mutex_);
    reports_.push_back(std::move(what));
  }

  // ---- submitting ----

  Stream* AddStream() {
    const std::lock_guard lock(mutex_);
    return streams_.emplace_back(std::make_unique<Stream>()).get();
  }
  void RemoveStream(Stream* stream) {
    const std::lock_guard lock(mutex_);
    if (!stream->queue.empty()) reports_.push_back("a stream is deleted with operations under way");
    std::erase_if(streams_, [&](const auto& one) { return one.get() == stream; });
  }
  int32_t Submit(Stream* stream, Operation operation) {
    Move();
    Lock lock(mutex_);
    if (is_lost_) return kLost;
    if (stream->captured) {
      if (operation.run == nullptr || operation.is_call) return kNotCaptured;
      stream->captured->push_back(std::move(operation));
      return 0;
    }
    Enqueue(lock, *stream, std::move(operation));
    return 0;
  }
  int32_t Record(Event* event, Stream* stream) {
    const auto record = std::make_shared<bool>(false);
    Operation operation;
    operation.reaches = record;
    const int32_t error = Submit(stream, std::move(operation));
    if (error != 0) return error;
    const std::lock_guard lock(mutex_);
    event->latest = record;
    return 0;
  }
  int32_t Wait(Stream* stream, Event* event) {
    Operation operation;
    operation.awaits = LatestOf(event);
    return Submit(stream, std::move(operation));
  }
  bool IsReached(Event* event) {
    Move();
    const std::lock_guard lock(mutex_);
    return event->latest == nullptr || *event->latest;
  }
  void Synchronize(Event* event) {
    Lock lock(mutex_);
    const std::shared_ptr<const bool> record = event->latest;
    while (record != nullptr && !*record) {
      if (is_served_) {
        executed_.wait(lock);
      } else {
        BATON_CHECK(Execute(lock));  // else nothing leads to the event
      }
    }
  }
  int32_t BeginCapture(Stream* stream) {
    const std::lock_guard lock(mutex_);
    BATON_CHECK(!stream->captured);
    stream->captured.emplace();
    return 0;
  }
  int32_t EndCapture(Stream* stream, Graph* graph) {
    const std::lock_guard lock(mutex_);
    BATON_CHECK(stream->captured.has_value());
    graph->nodes = *std::exchange(stream->captured, std::nullopt);
    return 0;
  }
  int32_t LaunchGraph(Stream* stream, const Graph* graph) {
    for (const Operation& node : graph->nodes)
      if (const int32_t error = Submit(stream, node)) return error;
    return 0;
  }
  // True if an operation under way touches the memory.
  bool IsUsed(const void* at, int64_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto* const first = static_cast<const std::byte*>(at);
    const auto overlaps = [&](const void* with, int64_t n) {
      const auto* const other = static_cast<const std::byte*>(with);
      return other != nullptr && other < first + bytes && first < other + n;
    };
    for (const auto& stream : streams_) {
      for (const Operation& o : stream->queue) {
        if (overlaps(o.to, o.bytes) || overlaps(o.from, o.bytes)) return true;
        for (const void* const used : o.uses)
          if (overlaps(used, 1)) return true;
      }
    }
    return false;
  }

  // ---- executing ----

  // False: nothing can be executed.
  bool ExecuteNext() {
    Lock lock(mutex_);
    return Execute(lock);
  }
  void ExecuteAll() {
    while (ExecuteNext()) continue;
  }
  // Loses the device: what is under way is not executed any more, every event is reached, and calls
  // of Notify come with the next that are executed.
  void Lose() {
    Lock lock(mutex_);
    executed_.wait(lock, [this] { return !is_running_; });
    DoLose();
  }
  // The device is lost instead of executing the operation after `n` more.
  void LoseAfter(uint64_t n) {
    const std::lock_guard lock(mutex_);
    lost_in_ = n + 1;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  friend class HostCudaThread;

  // Holds the lock while one expression reads.
  struct Reader {
    const HostStreams* streams;
    std::unique_lock<std::mutex> lock;
    const HostStreams* operator->() const { return streams; }
  };
  Reader Locked() const { return {this, Lock(mutex_)}; }

  std::shared_ptr<const bool> LatestOf(const Event* event) const {
    const std::lock_guard lock(mutex_);
    return event->latest;
  }
  void Enqueue(Lock& lock, Stream& stream, Operation operation) {
    if (is_late_) {
      stream.queue.push_back(std::move(operation));
      MarkReady();
      submitted_.notify_one();
      return;
    }
    lock.unlock();
    if (operation.run != nullptr) operation.run();
    if (operation.reaches != nullptr) *operation.reaches = true;
  }
  static bool CanRun(const Stream& stream) {
    return !stream.queue.empty() &&
           (stream.queue.front().awaits == nullptr || *stream.queue.front().awaits);
  }
  static size_t DigestOf(const Operation& o) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(o.from), static_cast<size_t>(o.bytes)});
  }
  void MarkReady() {
    for (const auto& stream : streams_) {
      if (!CanRun(*stream)) continue;
      Operation& head = stream->queue.front();
      if (std::exchange(head.is_ready, true)) continue;
      if (head.to != nullptr) std::memset(head.to, kPoison, static_cast<size_t>(head.bytes));
      if (head.from != nullptr) head.digest = DigestOf(head);
    }
  }
  // The device goes on while the host does, at the pace of the seed.
  void Move() {
    Lock lock(mutex_);
    if (!is_late_ || is_served_ || is_running_ || is_lost_ || random_() % 8 >= pace_) return;
    for (uint64_t n = 1 + random_() % 3; n > 0 && !is_lost_; --n) Execute(lock);
  }
  bool Execute(Lock& lock) {
    BATON_CHECK(!is_running_);
    if (is_lost_) {
      if (calls_.empty()) return false;
      const std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
      return true;
    }
    std::vector<Stream*> ready;
    for (const auto& stream : streams_)
      if (CanRun(*stream)) ready.push_back(stream.get());
    if (ready.empty()) return false;
    if (lost_in_ > 0 && --lost_in_ == 0) {
      DoLose();
      return true;
    }
    Stream& stream = *ready[random_() % ready.size()];
    Operation& head = stream.queue.front();
    if (head.from != nullptr && head.digest != DigestOf(head))
      reports_.push_back("the source of a copy has changed while the copy was under way");
    is_running_ = true;
    lock.unlock();
    if (head.run != nullptr) head.run();
    lock.lock();
    is_running_ = false;
    if (head.reaches != nullptr) *head.reaches = true;
    stream.queue.pop_front();
    MarkReady();
    executed_.notify_all();
    return true;
  }
  void DoLose() {
    if (std::exchange(is_lost_, true)) return;
    for (const auto& stream : streams_) {
      for (Operation& o : stream->queue) {
        if (o.is_call) calls_.push_back(std::move(o.run));
        if (o.reaches != nullptr) *o.reaches = true;
      }
      stream->queue.clear();
    }
    executed_.notify_all();
    submitted_.notify_one();
  }

  const bool is_late_;
  const uint64_t pace_;
  mutable std::mutex mutex_;
  std::condition_variable submitted_, executed_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::deque<std::function<void()>> calls_;  // of Notify, that a lost device still makes
  std::vector<std::string> reports_;
  uint64_t lost_in_ = 0;
  bool is_lost_ = false, is_running_ = false, is_served_ = false, is_stopping_ = false;
};

// A thread that executes, until its end; the streams outlive it.
class HostCudaThread {
 public:
  explicit HostCudaThread(HostStreams& streams) : streams_(streams) {
    BATON_CHECK(streams.is_late());
    {
      const std::lock_guard lock(streams.mutex_);
      streams.is_served_ = true;
    }
    thread_ = std::thread([this] {
      HostStreams::Lock lock(streams_.mutex_);
      while (!streams_.is_stopping_)
        if (!streams_.Execute(lock)) streams_.submitted_.wait(lock);
    });
  }
  ~HostCudaThread() {
    {
      const std::lock_guard lock(streams_.mutex_);
      streams_.is_stopping_ = true;
      streams_.submitted_.notify_one();
    }
    thread_.join();
    const std::lock_guard lock(streams_.mutex_);
    streams_.is_served_ = streams_.is_stopping_ = false;
  }
  HostCudaThread(const HostCudaThread&) = delete;
  HostCudaThread& operator=(const HostCudaThread&) = delete;

 private:
  HostStreams& streams_;
  std::thread thread_;
};

}  // namespace baton
