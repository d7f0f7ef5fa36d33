// The times by which requests for tokens must have ended, in the order of time. Front thread.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "server/http/event_loop.h"
#include "server/http/exchange_writer.h"

namespace baton {

inline constexpr char kTimeoutHeader[] = "x-request-timeout-ms";

// The value of x-request-timeout-ms: whole milliseconds, 1 to 86400000. Nothing: it is none.
std::optional<absl::Duration> RequestTimeout(std::string_view header);

class RequestDeadlines {
 public:
  // on_late: called once for each exchange whose time has passed, and which is then forgotten. The
  // loop must outlive the object.
  RequestDeadlines(EventLoop* loop, std::function<void(ExchangeId)> on_late);

  void Add(ExchangeId id, absl::Time when);  // when: of MonotonicNow
  // The pair that was added, or none.
  void Remove(ExchangeId id, absl::Time when) { deadlines_.erase({when, id}); }

 private:
  void OnTime();

  const std::function<void(ExchangeId)> on_late_;
  EventLoop::Timer timer_;
  absl::Time set_for_ = absl::InfiniteFuture();  // of the timer
  absl::btree_set<std::pair<absl::Time, ExchangeId>> deadlines_;
};

}  // namespace baton
