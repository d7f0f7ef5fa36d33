#include "bench/load/interference_bench.h"

#include <xxhash.h>

#include <atomic>
#include <boost/json.hpp>
#include <cstdio>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/load_client.h"
#include "common/progress_bar.h"

namespace baton {
namespace {

struct Round {
  std::vector<double> itl_ms;        // gaps inside the measured window
  std::vector<double> long_ttft_ms;  // of the long prompts
  uint64_t digest = 0;               // of the streams' texts, which the load must not change
  std::string error;
};

std::vector<LoadRequest> Prompts(const InterferenceBenchOptions& options, int n, int prompt_tokens,
                                 int output_tokens, uint64_t seed) {
  return MakeSynthetic({.n_requests = n,
                        .prompt_tokens = prompt_tokens,
                        .output_tokens = output_tokens,
                        .request_rate = 0,
                        .vocab = options.vocab,
                        .seed = seed});
}

// Runs the streams; when `loaded`, long prompts follow each other until the first stream ends.
// Only gaps during which the load was on (idle: all streams were running) count.
Round RunRound(const HttpClient& client, const InterferenceBenchOptions& options, bool loaded) {
  const std::vector<LoadRequest> requests = Prompts(
      options, options.n_streams, options.stream_prompt_tokens, options.stream_output_tokens, 1);
  std::vector<Outcome> outcomes(requests.size());
  std::atomic<int> n_started = 0, n_running = static_cast<int>(requests.size());
  std::vector<std::thread> streams;
  for (size_t i = 0; i < requests.size(); ++i) {
    streams.emplace_back([&, i] {
      outcomes[i] = RunLoadRequest(client, requests[i], [&](const Outcome& out) {
        if (out.chunk_times.size() == 2) n_started.fetch_add(1);
        n_started.notify_all();
      });
      n_running.fetch_sub(1);
      n_started.fetch_add(1000);  // a stream that failed early must not block the wait below
      n_started.notify_all();
    });
  }
  for (int seen = n_started; seen < options.n_streams; seen = n_started) n_started.wait(seen);
  Round round;
  const absl::Time window_start = absl::Now();
  absl::Time window_end = absl::InfiniteFuture();
  if (loaded) {
    const std::vector<LoadRequest> longs = Prompts(options, 64, options.long_prompt_tokens, 1, 2);
    for (size_t i = 0; i < longs.size() && n_running == options.n_streams; ++i) {
      const Outcome out = RunLoadRequest(client, longs[i]);
      if (!out.ok) round.error = out.error;
      round.long_ttft_ms.push_back(out.ttft_ms());
      window_end = absl::Now();
    }
  }
  for (std::thread& stream : streams) stream.join();
  for (const Outcome& out : outcomes) {
    if (!out.ok) round.error = out.error;
    if (!out.chunk_times.empty()) window_end = std::min(window_end, out.chunk_times.back());
    round.digest = XXH64(out.text.data(), out.text.size(), round.digest);
  }
  for (const Outcome& out : outcomes) {
    for (size_t i = 2; i < out.chunk_times.size(); ++i) {
      if (out.chunk_times[i - 1] < window_start || out.chunk_times[i] > window_end) continue;
      round.itl_ms.push_back(
          absl::ToDoubleMilliseconds(out.chunk_times[i] - out.chunk_times[i - 1]));
    }
  }
  return round;
}

void Append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

int RunInterferenceBench(const InterferenceBenchOptions& options) {
  const absl::StatusOr<HttpUrl> url = HttpUrl::Parse(options.url);
  if (!url.ok()) {
    std::fprintf(stderr, "bench interference: %s\n", url.status().ToString().c_str());
    return 2;
  }
  const HttpClient client(*url);
  RunLoadRequest(client, Prompts(options, 1, options.long_prompt_tokens, 2, 3).front());  // warm-up
  std::vector<double> idle_ms, loaded_ms, long_ttft_ms;
  uint64_t digest = 0;
  ProgressBar progress("measuring", ProgressUnit::kParts, 2 * options.n_rounds);
  for (int i = 0; i < options.n_rounds; ++i) {
    progress.Next("streams alone");
    const Round idle = RunRound(client, options, false);
    progress.Next("streams beside long prompts");
    const Round loaded = RunRound(client, options, true);
    progress.Finish();
    for (const Round* round : {&idle, &loaded}) {
      if (!round->error.empty()) {
        std::fprintf(stderr, "bench interference: %s\n", round->error.c_str());
        return 1;
      }
    }
    if (idle.digest != loaded.digest || (i > 0 && idle.digest != digest)) {
      std::fprintf(stderr, "bench interference: the load changed the streams' tokens\n");
      return 1;
    }
    digest = idle.digest;
    Append(idle_ms, idle.itl_ms);
    Append(loaded_ms, loaded.itl_ms);
    Append(long_ttft_ms, loaded.long_ttft_ms);
  }
  const Distribution idle(idle_ms), loaded(loaded_ms), ttft(long_ttft_ms);
  const double ratio = loaded.percentile(99) / idle.percentile(99);
  std::printf("%s  %d streams, prompts of %d tokens beside them, %d rounds\n",
              options.label.c_str(), options.n_streams, options.long_prompt_tokens,
              options.n_rounds);
  std::printf("  %-22s %9s %9s %9s %9s\n", "ms", "n", "p50", "p99", "max");
  for (const auto& [name, values] :
       {std::pair{"itl idle", &idle}, {"itl loaded", &loaded}, {"long prompt ttft", &ttft}}) {
    std::printf("  %-22s %9zu %9.2f %9.2f %9.2f\n", name, values->values.size(),
                values->percentile(50), values->percentile(99), values->percentile(100));
  }
  std::printf("  itl p99 loaded / idle  %.2f   digest of the streams %016llx\n", ratio,
              static_cast<unsigned long long>(digest));
  if (options.json) {
    const boost::json::object object{{"label", options.label},
                                     {"itl_idle_p50_ms", idle.percentile(50)},
                                     {"itl_idle_p99_ms", idle.percentile(99)},
                                     {"itl_loaded_p50_ms", loaded.percentile(50)},
                                     {"itl_loaded_p99_ms", loaded.percentile(99)},
                                     {"itl_p99_ratio", ratio},
                                     {"long_ttft_p50_ms", ttft.percentile(50)},
                                     {"digest", absl::StrFormat("%016x", digest)}};
    std::printf("%s\n", boost::json::serialize(object).c_str());
  }
  return 0;
}

}  // namespace baton
