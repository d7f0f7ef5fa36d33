#include "bench/load/load_replay.h"

#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace baton {

std::vector<Outcome> Replay(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                            const ReplayOptions& options) {
  std::vector<Outcome> outcomes(requests.size());
  std::vector<std::thread> threads;
  absl::Mutex mutex;
  int in_flight = 0;
  const auto has_place = [&] { return in_flight < options.max_concurrency; };
  const absl::Time start = absl::Now();
  const absl::Time deadline =
      options.seconds > 0 ? start + absl::Seconds(options.seconds) : absl::InfiniteFuture();
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::Time due = start + absl::Seconds(requests[i].start_s);
    absl::SleepFor(due - absl::Now());
    bool starts = false;
    {
      absl::MutexLock lock(&mutex);
      starts = mutex.AwaitWithDeadline(absl::Condition(&has_place), deadline);
      if (starts) ++in_flight;
    }
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
      absl::MutexLock lock(&mutex);
      --in_flight;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace baton
