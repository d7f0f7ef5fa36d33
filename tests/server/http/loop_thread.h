// An event loop on its own thread, and access for a test to objects that live there.
#pragma once

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/http/event_loop.h"

namespace baton {

struct LoopThread {
  EventLoop loop;
  std::thread thread;

  void Start() {
    thread = std::thread([this] { loop.Run(); });
  }
  void Stop() {
    loop.Stop();
    thread.join();
  }
  // Runs fn on the loop's thread and waits for it.
  template <typename Fn>
  auto On(Fn fn) {
    std::packaged_task<decltype(fn())()> task(std::move(fn));
    auto result = task.get_future();
    loop.Post([&task] { task(); });
    return result.get();
  }
  bool WaitFor(const std::function<bool()>& condition, absl::Duration limit = absl::Seconds(20)) {
    for (const absl::Time end = absl::Now() + limit; absl::Now() < end;) {
      if (On(condition)) return true;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return On(condition);
  }
};

}  // namespace baton
