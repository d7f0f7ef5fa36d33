// Drains an EngineThread or a Worker, and waits until nothing runs there any more.
#pragma once

#include <chrono>
#include <future>
#include <memory>

namespace baton {

// False: something still runs after so many seconds.
template <typename Drainable>
bool DrainWithin(Drainable* worker, int seconds) {
  const auto drained = std::make_shared<std::promise<void>>();
  worker->Drain([drained] { drained->set_value(); });
  return drained->get_future().wait_for(std::chrono::seconds(seconds)) == std::future_status::ready;
}

}  // namespace baton
