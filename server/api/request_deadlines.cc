#include "server/api/request_deadlines.h"

#include "absl/strings/numbers.h"
#include "common/clock.h"

namespace baton {

std::optional<absl::Duration> RequestTimeout(std::string_view header) {
  constexpr int64_t kDay = int64_t{24} * 3600 * 1000;
  int64_t ms = 0;
  const bool is_plain = header.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_plain || !absl::SimpleAtoi(absl::string_view(header.data(), header.size()), &ms) ||
      ms < 1 || ms > kDay)
    return std::nullopt;
  return absl::Milliseconds(ms);
}

RequestDeadlines::RequestDeadlines(EventLoop* loop, std::function<void(ExchangeId)> on_late)
    : on_late_(std::move(on_late)), timer_(loop) {}

// Requests that ended leave the timer as it is: it fires for nothing now and then.
void RequestDeadlines::Add(ExchangeId id, absl::Time when) {
  if (when == absl::InfiniteFuture()) return;
  deadlines_.emplace(when, id);
  if (set_for_ <= when) return;
  set_for_ = when;
  timer_.Set(when, [this] { OnTime(); });
}

void RequestDeadlines::OnTime() {
  const absl::Time now = MonotonicNow();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const ExchangeId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    on_late_(id);
  }
  set_for_ = deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  timer_.Set(set_for_, [this] { OnTime(); });
}

}  // namespace baton
