#include "tests/e2e/stream_crowd.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <sstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

constexpr absl::Duration kLongestCrowd = absl::Seconds(30);

void RunOnce(const HttpClient& client, int n, const std::function<void()>& on_20th,
             CrowdStream& stream) {
  std::string text;
  int chunks = 0;
  absl::Time last = absl::Now();
  const std::string prompt = absl::StrFormat("Tell me about %d ducks.", n);
  const auto response = client.Post(
      "/v1/completions", StreamBody(prompt, kCrowdTokens),
      [&](std::string_view data, absl::Time now) {
        stream.longest_gap = std::max(stream.longest_gap, now - last);
        last = now;
        if (++chunks == 20) on_20th();
        text += std::string(data.substr(std::min(data.size(), data.find("\"choices\""))));
        return data != "[DONE]";
      });
  if (!response.ok()) text = std::string(response.status().message());
  if (stream.answers++ == 0) {
    stream.text = text;
  } else if (text != stream.text) {
    stream.text += "\nand another time\n" + text;
  }
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
                                  const std::function<void()>& when_all_run,
                                  const std::function<bool()>& over) {
  std::atomic<int> running = 0;
  std::atomic<bool> all_ran = false;
  std::vector<CrowdStream> streams(kCrowd);
  std::vector<std::thread> threads;
  const absl::Time end = absl::Now() + kLongestCrowd;
  for (int i = 0; i < kCrowd; ++i)
    threads.emplace_back([&, i] {
      const auto on_20th = [&] {
        if (streams[i].answers > 0 || ++running < kCrowd) return;
        when_all_run();
        all_ran = true;
      };
      do {
        RunOnce(client, i, on_20th, streams[i]);
      } while ((!all_ran || !over()) && absl::Now() < end);
    });
  for (std::thread& thread : threads) thread.join();
  return streams;
}

int AnswersOf(const std::vector<CrowdStream>& streams) {
  int answers = 0;
  for (const CrowdStream& stream : streams) answers += stream.answers;
  return answers;
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
