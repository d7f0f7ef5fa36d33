// Drains an EngineThread or a Worker, and waits until nothing runs there any more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace baton {

// False: something still runs after so many seconds.
template <typename Drainable>
bool DrainWithin(Drainable* worker, int seconds) {
  struct Drained {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  auto drained = std::make_unique<Drained>();
  worker->Drain([state = drained.get()] {
    const std::lock_guard lock(state->mutex);
    state->done = true;
    state->changed.notify_all();
  });
  std::unique_lock lock(drained->mutex);
  const bool done =
      drained->changed.wait_for(lock, std::chrono::seconds(seconds), [&] { return drained->done; });
  lock.unlock();
  if (!done) static_cast<void>(drained.release());  // the worker may still call
  return done;
}

}  // namespace baton
