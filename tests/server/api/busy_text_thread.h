// A server whose one text thread is busy until a test releases it, so that the test sees what
// waits.
#pragma once

#include <catch2/catch.hpp>
#include <future>
#include <utility>

#include "tests/server/api/served_api.h"

namespace baton {

struct BusyTextThread {
  explicit BusyTextThread(Served* server) : served(server) {
    CHECK(served->pool->TryRun({}, 0, [held = release.get_future().share()] { held.wait(); }));
    REQUIRE(WaitForJobs(0));
  }
  ~BusyTextThread() { Release(); }
  bool WaitForJobs(size_t n) {
    return served->WaitFor([&] { return served->pool->load().jobs == n; });
  }
  void Release() {
    if (!std::exchange(released, true)) release.set_value();
  }
  Served* served;
  std::promise<void> release;
  bool released = false;
};

}  // namespace baton
