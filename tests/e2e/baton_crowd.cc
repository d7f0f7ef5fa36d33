// baton_crowd: a real router process with 256 streams (crowd_rig.h). Prints the router's processor
// time per streamed token, and the gaps between tokens alone and, in turns, while prompts of 4 KiB
// and 1 MB arrive and the clients of 200 prompts of 1 MB go away. Exit status 1: more than 100 us a
// token, or a p99 gap beyond 1.5 times that alone.
//   baton_crowd [SECONDS of each of four turns] [MILLISECONDS of a step]
#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/crowd_rig.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

constexpr int kStreamTokens = 400, kGone = 200;
constexpr size_t kSmallPrompt = 4 << 10, kLargePrompt = 1'000'000;
constexpr double kMaxMicroseconds = 100, kMaxGapRatio = 1.5;

std::string Prompt(size_t size, int i) {
  std::string text = absl::StrCat("Box ", i, ".");
  for (int word = 0; text.size() < size; ++word) absl::StrAppend(&text, " box ", (word * 7) % 1000);
  text.resize(size);
  return text;
}

std::string Body(const std::string& prompt) {
  return boost::json::serialize(
      boost::json::object{{"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}});
}

struct Turn {
  std::vector<double> gaps;  // ms, ascending
  int64_t n_tokens = 0;
  double cpu_seconds = 0;
  int n_failed = 0;
};

// Streams that are requested again and again for a while.
Turn Stream(const HttpClient& client, pid_t router, absl::Duration duration) {
  std::mutex mutex;
  Turn turn;
  std::vector<std::thread> threads;
  const absl::Time end = absl::Now() + duration;
  const double before = CpuSeconds(router);
  for (int i = 0; i < kCrowdStreams; ++i)
    threads.emplace_back([&, i] {
      std::vector<double> gaps;
      int64_t n_tokens = 0;
      int n_failed = 0;
      for (int round = 0; absl::Now() < end; ++round) {
        absl::Time last = absl::InfiniteFuture();
        // Not all at once, so that the crowd's prompts are spread over its turn.
        const int length = round == 0 ? 1 + i * kStreamTokens / kCrowdStreams : kStreamTokens;
        const auto response = client.Post(
            "/v1/completions", StreamBody(absl::StrCat("Tell me about ", i, " ducks."), length),
            [&](std::string_view data, absl::Time now) {
              if (last < now) gaps.push_back(absl::ToDoubleMilliseconds(now - last));
              last = now;
              n_tokens += data != "[DONE]";
              return data != "[DONE]" && now < end;
            });
        n_failed += (!response.ok() || response->status != 200) && absl::Now() < end;
      }
      std::lock_guard lock(mutex);
      turn.gaps.insert(turn.gaps.end(), gaps.begin(), gaps.end());
      turn.n_tokens += n_tokens;
      turn.n_failed += n_failed;
    });
  for (std::thread& thread : threads) thread.join();
  turn.cpu_seconds = CpuSeconds(router) - before;
  std::sort(turn.gaps.begin(), turn.gaps.end());
  return turn;
}

// Sends what arrives beside the streams until `over`.
class Disturbance {
 public:
  Disturbance(const HttpClient& client, int port, absl::Duration turn) {
    threads_.emplace_back([this, client] { Ask(client, kSmallPrompt, absl::Milliseconds(50)); });
    threads_.emplace_back([this, client] { Ask(client, kLargePrompt, absl::Seconds(1)); });
    threads_.emplace_back([this, port, turn] { GoAway(port, turn * 2 / (kGone * 3)); });
  }
  ~Disturbance() {
    over_ = true;
    for (std::thread& thread : threads_) thread.join();
    std::printf(
        "beside: %d prompts of 4 KiB and %d of 1 MB answered, %d clients went away, %d "
        "failed\n",
        n_small_.load(), n_large_.load(), n_gone_.load(), n_failed_.load());
  }

 private:
  void Ask(const HttpClient& client, size_t size, absl::Duration pause) {
    for (int i = 0; !over_; ++i) {
      const auto response = client.Post("/v1/completions", Body(Prompt(size, i)));
      const bool is_good = response.ok() && response->status == 200;
      if (!is_good && n_failed_++ == 0)
        std::printf("failed: %s\n", response.ok() ? response->body.substr(0, 300).c_str()
                                                  : response.status().ToString().c_str());
      if (is_good) ++(size == kSmallPrompt ? n_small_ : n_large_);
      absl::SleepFor(pause);
    }
  }
  void GoAway(int port, absl::Duration pause) {
    for (int i = 0; !over_ && i < kGone; ++i) {
      const std::string body = Body(Prompt(kLargePrompt, 1000 + i));
      RawClient client(port);
      client.Send(
          absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                       "application/json\r\nContent-Length: ",
                       body.size(), "\r\n\r\n", body));
      absl::SleepFor(pause);
      ++n_gone_;
    }
  }

  std::atomic<bool> over_ = false;
  std::atomic<int> n_small_ = 0, n_large_ = 0, n_gone_ = 0, n_failed_ = 0;
  std::vector<std::thread> threads_;
};

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * double(sorted.size())))];
}

absl::Status Run(absl::Duration duration, std::chrono::microseconds step, bool* is_good) {
  ASSIGN_OR_RETURN(const auto rig, CrowdRig::Start(step));
  const auto& router = rig->router;
  const HttpClient client = router->client();
  const pid_t pid = router->pid();
  Stream(client, pid, absl::Seconds(3));  // warm-up

  Turn turns[2];
  for (int round = 0; round < 2; ++round) {
    for (const int beside : {0, 1}) {
      std::unique_ptr<Disturbance> disturbance;
      if (beside == 1)
        disturbance = std::make_unique<Disturbance>(client, router->url().port, duration);
      const Turn turn = Stream(client, pid, duration);
      disturbance.reset();
      Turn& all = turns[beside];
      all.gaps.insert(all.gaps.end(), turn.gaps.begin(), turn.gaps.end());
      all.n_tokens += turn.n_tokens;
      all.cpu_seconds += turn.cpu_seconds;
      all.n_failed += turn.n_failed;
    }
  }
  for (Turn& turn : turns) std::sort(turn.gaps.begin(), turn.gaps.end());
  const double per_token =
      1e6 * turns[0].cpu_seconds / static_cast<double>(std::max<int64_t>(1, turns[0].n_tokens));
  const double ratio =
      Quantile(turns[1].gaps, 0.99) / std::max(1e-9, Quantile(turns[0].gaps, 0.99));
  for (const Turn& turn : turns)
    std::printf(
        "%-8s %9lld tokens  p50 %7.2f ms  p99 %7.2f ms  max %7.2f ms  router %.2f s, %d "
        "failed\n",
        &turn == turns ? "alone" : "beside", static_cast<long long>(turn.n_tokens),
        Quantile(turn.gaps, 0.5), Quantile(turn.gaps, 0.99), Quantile(turn.gaps, 1),
        turn.cpu_seconds, turn.n_failed);
  *is_good = per_token <= kMaxMicroseconds && ratio <= kMaxGapRatio &&
             turns[0].n_failed + turns[1].n_failed == 0;
  std::printf(
      "%d streams: %.1f us of the router a token (at most %.0f), p99 gap %.2f times (at "
      "most %.1f): %s\n",
      kCrowdStreams, per_token, kMaxMicroseconds, ratio, kMaxGapRatio, *is_good ? "good" : "BAD");
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 20;
  const double step = argc > 2 ? std::atof(argv[2]) : 25;
  bool is_good = false;
  const absl::Status status =
      baton::Run(absl::Seconds(seconds),
                 std::chrono::microseconds(static_cast<int64_t>(step * 1000)), &is_good);
  if (!status.ok()) std::printf("%s\n", std::string(status.message()).c_str());
  return status.ok() && is_good ? 0 : 1;
}
