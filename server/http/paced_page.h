// A page that costs much to make, like /metrics: it is made at most once in `pause`. Who asks
// sooner gets it when it is made next, one for all who wait, so it is never older than its
// question. Loop's thread.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/http/event_loop.h"

namespace baton {

inline constexpr absl::Duration kMetricsPause = absl::Milliseconds(250);

class PacedPage {
 public:
  PacedPage(EventLoop* loop, absl::Duration pause, std::function<std::string()> make)
      : pause_(pause), make_(std::move(make)), timer_(loop) {}

  // Calls `use` with the page: at once, or later.
  void Get(std::function<void(const std::string&)> use);

 private:
  void Make();

  const absl::Duration pause_;
  const std::function<std::string()> make_;
  EventLoop::Timer timer_;
  absl::Time made_ = absl::InfinitePast();
  std::vector<std::function<void(const std::string&)>> waiting_;  // one per connection at most
};

}  // namespace baton
