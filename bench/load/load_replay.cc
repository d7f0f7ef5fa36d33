#include "bench/load/load_replay.h"

#include <cstdint>
#include <thread>

#include "absl/time/clock.h"
#include "bench/load/run_progress.h"

namespace baton {
namespace {

constexpr size_t kNever = SIZE_MAX;  // more than ever end: only the time is awaited

}  // namespace

std::vector<Outcome> Replay(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                            const ReplayOptions& options) {
  std::vector<Outcome> outcomes(requests.size());
  std::vector<std::thread> threads;
  RunProgress progress(requests.size(), options.seconds);
  const auto places = static_cast<size_t>(options.max_concurrency);
  const absl::Time start = absl::Now();
  const absl::Time deadline =
      options.seconds > 0 ? start + absl::Seconds(options.seconds) : absl::InfiniteFuture();
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::Time due = start + absl::Seconds(requests[i].start_s);
    progress.Await(kNever, due);
    const size_t started = threads.size();
    const bool starts = started < places || progress.Await(started - places + 1, deadline);
    if (requests[i].start_s == 0)
      due = absl::Now();  // without a schedule a request starts when a place is free, without lag
    if (!starts) {
      outcomes[i].cut = true;
      outcomes[i].n_prompt = static_cast<int>(requests[i].prompt.size());
      outcomes[i].sent = outcomes[i].ended = deadline;
      outcomes[i].lag_ms = absl::ToDoubleMilliseconds(deadline - due);
      continue;
    }
    threads.emplace_back([&, i, due] {
      const double lag_ms = absl::ToDoubleMilliseconds(absl::Now() - due);
      outcomes[i] = RunLoadRequestUntil(url, requests[i], deadline);
      outcomes[i].lag_ms = lag_ms;
      progress.OneEnded();
    });
  }
  progress.Await(threads.size(), absl::InfiniteFuture());
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace baton
