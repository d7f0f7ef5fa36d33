#include "bench/load/run_progress.h"

#include <algorithm>

#include "absl/time/clock.h"

namespace baton {
namespace {

constexpr absl::Duration kShowEvery = absl::Seconds(1);

}  // namespace

RunProgress::RunProgress(size_t n, double seconds)
    : seconds_(seconds),
      start_(absl::Now()),
      next_show_(start_ + kShowEvery),
      bar_("load", seconds > 0 ? ProgressUnit::kShare : ProgressUnit::kParts,
           seconds > 0 ? 1 : static_cast<double>(n)) {}

void RunProgress::OneEnded() {
  absl::MutexLock lock(&mutex_);
  ++n_ended_;
}

bool RunProgress::Await(size_t n, absl::Time until) {
  const auto have_ended = [&] { return n_ended_ >= n; };
  while (true) {
    if (absl::Now() >= next_show_) Show();  // before a wait, so that it makes nothing late
    absl::MutexLock lock(&mutex_);
    const absl::Time tick = std::min(until, next_show_);
    if (mutex_.AwaitWithDeadline(absl::Condition(&have_ended), tick)) return true;
    if (absl::Now() >= until) return false;
  }
}

void RunProgress::Show() {
  const absl::Time now = absl::Now();
  next_show_ = now + kShowEvery;
  size_t n_ended = 0;
  {
    absl::MutexLock lock(&mutex_);
    n_ended = n_ended_;
  }
  const double spent = absl::ToDoubleSeconds(now - start_);
  bar_.Show(seconds_ > 0 ? std::min(1.0, spent / seconds_) : static_cast<double>(n_ended));
}

}  // namespace baton
