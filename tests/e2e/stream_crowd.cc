#include "e2e/stream_crowd.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <sstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

CrowdStream RunStream(const HttpClient& client, int n, const std::function<void()>& on_20th) {
  CrowdStream stream;
  int chunks = 0;
  absl::Time last = absl::Now();
  const std::string prompt = absl::StrFormat("Tell me about %d ducks.", n);
  const auto response = client.Post(
      "/v1/completions", StreamBody(prompt, kCrowdTokens),
      [&](std::string_view data, absl::Time now) {
        if (chunks > 0) stream.longest_gap = std::max(stream.longest_gap, now - last);
        last = now;
        if (++chunks == 20) on_20th();
        stream.text += std::string(data.substr(std::min(data.size(), data.find("\"choices\""))));
        return data != "[DONE]";
      });
  if (!response.ok()) stream.text = std::string(response.status().message());
  return stream;
}

}  // namespace

std::string StreamBody(const std::string& prompt, int max_tokens) {
  return boost::json::serialize(boost::json::object{{"prompt", prompt},
                                                    {"max_tokens", max_tokens},
                                                    {"temperature", 0},
                                                    {"ignore_eos", true},
                                                    {"stream", true}});
}

std::vector<CrowdStream> RunCrowd(const HttpClient& client,
                                  const std::function<void()>& when_all_run) {
  std::atomic<int> running = 0;
  std::vector<CrowdStream> streams(kCrowd);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCrowd; ++i)
    threads.emplace_back([&, i] {
      streams[i] = RunStream(client, i, [&] {
        if (++running == kCrowd) when_all_run();
      });
    });
  for (std::thread& thread : threads) thread.join();
  return streams;
}

double MetricSum(const HttpClient& client, const std::string& name, const std::string& label) {
  const absl::StatusOr<HttpResponse> response = client.Get("/metrics");
  if (!response.ok() || response->status != 200) return -1;
  std::istringstream lines(response->body);
  double sum = -1;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    const char next = line[name.size()];
    if ((next != '{' && next != ' ') || line.find(label) == std::string::npos) continue;
    sum = std::max(sum, 0.0) + std::stod(line.substr(line.rfind(' ') + 1));
  }
  return sum;
}

bool WaitUntil(absl::Duration limit, const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + limit; absl::Now() < end;) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return condition();
}

}  // namespace baton
