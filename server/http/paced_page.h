// A page that costs much to make, like /metrics: made at most once in `pause`. A request that comes
// sooner gets the page when it is made next, one page for all who wait, so the page is never older
// than the request. Loop's thread.
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
  // The loop must outlive the page.
  PacedPage(EventLoop* loop, absl::Duration pause, std::function<std::string()> make)
      : pause_(pause), make_(std::move(make)), timer_(loop) {}

  // Calls `use` with the page: at once, or later, but not after the end of this object.
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
