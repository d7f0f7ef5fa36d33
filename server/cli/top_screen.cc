#include "server/cli/top_screen.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr int64_t kWindow = 10;  // seconds that percentiles look back
constexpr size_t kMaxEnded = 200;
constexpr int kGauge = 12;  // columns of a bar

std::string Str(const json::value& value) {
  return value.is_string() ? std::string(value.as_string().c_str()) : "";
}
double Num(const json::value& value) { return value.is_number() ? value.to_number<double>() : 0; }
int64_t Int(const json::value& value) { return static_cast<int64_t>(Num(value)); }

std::string DurationText(double ms) {
  if (ms < 1) return absl::StrFormat("%.0f us", 1000 * ms);
  if (ms < 1000) return absl::StrFormat(ms < 10 ? "%.2f ms" : ms < 100 ? "%.1f ms" : "%.0f ms", ms);
  return absl::StrFormat("%.2f s", ms / 1000);
}

std::string RateText(double bytes_per_second) {
  for (const char* unit : {"B/s", "kB/s", "MB/s"}) {
    if (bytes_per_second < 1000) return absl::StrFormat("%.3g %s", bytes_per_second, unit);
    bytes_per_second /= 1000;
  }
  return absl::StrFormat("%.3g GB/s", bytes_per_second);
}

std::string Gauge(double part, double whole) {
  const int n = whole <= 0 ? 0 : static_cast<int>(std::clamp(part / whole, 0.0, 1.0) * kGauge + .5);
  return absl::StrCat("[", std::string(static_cast<size_t>(n), '#'),
                      std::string(static_cast<size_t>(kGauge - n), '.'), "]");
}

// The latency in ms below which this part of all is, even within a size, which is an eighth of its
// octave.
double Percentile(const std::map<int64_t, int64_t>& sizes, int64_t n, double part) {
  double left = part * static_cast<double>(n);
  for (const auto& [floor, times] : sizes) {
    const auto here = static_cast<double>(times);
    const int octave = static_cast<int>(std::bit_width(static_cast<uint64_t>(floor))) - 1;
    const double width = floor < 8 ? 1 : static_cast<double>(int64_t{1} << (octave - 3));
    if (left <= here) return (static_cast<double>(floor) + left / here * width) / 1000;
    left -= here;
  }
  return 0;
}

std::string WorkerLine(const json::value& worker) {
  const json::value& pages = worker.at("pages");
  const double total = Num(pages.at("total")), used = total - Num(pages.at("free"));
  std::vector<std::string> links;
  for (const json::value& link : worker.at("links").as_array()) {
    std::string text = absl::StrCat(Str(link.at("to")), " ");
    const double rate = Num(link.at("bytes_per_second"));
    const json::value* broken = link.as_object().if_contains("broken");  // older routers: none
    const bool is_broken = broken != nullptr && broken->as_bool();
    absl::StrAppend(&text, is_broken ? "BROKEN" : rate > 0 ? RateText(rate) : "-");
    if (const int64_t tokens = Int(link.at("tokens_under_way")); tokens > 0)
      absl::StrAppend(&text, " (", tokens, " tokens)");
    links.push_back(text);
  }
  return absl::StrFormat(
      "%-12s %-8s %8d  %s %3d/%-4d  %s %6.0f/%-6.0f  %6s  %s", Str(worker.at("name")),
      worker.at("standing").as_bool()   ? "standing"
      : worker.at("draining").as_bool() ? "draining"
                                        : Str(worker.at("role")),
      Int(worker.at("prefill_queued_tokens")),
      Gauge(Num(worker.at("decode_rows")), Num(worker.at("max_batch"))),
      Int(worker.at("decode_rows")), Int(worker.at("max_batch")), Gauge(used, total), used, total,
      DurationText(Num(worker.at("silent_ms"))), absl::StrJoin(links, ", "));
}

std::string RequestLine(const json::value& request) {
  const absl::Time arrived = absl::UnixEpoch() + absl::Seconds(Num(request.at("arrived")));
  const json::value* ttft = request.as_object().if_contains("ttft_ms");
  std::string end = Str(request.at("finish"));
  if (end.empty()) end = request.at("waits").as_bool() ? "waits" : "runs";
  std::string via, failures;
  for (const json::value& attempt : request.at("attempts").as_array()) {
    std::vector<std::string> ranks;
    for (const json::value& rank : attempt.at("prefill").as_array()) ranks.push_back(Str(rank));
    via = absl::StrCat(absl::StrJoin(ranks, "+"), " ", Str(attempt.at("decode")));
    const json::value* failure = attempt.as_object().if_contains("failure");
    if (failure == nullptr) continue;
    absl::StrAppend(&failures, "  ! ", Str(failure->at("cause")), " ", Str(failure->at("worker")));
  }
  return absl::StrFormat(
      "%s  %-7s %10s %10s %7d %7d  %s%s",
      absl::FormatTime("%H:%M:%S", arrived, absl::LocalTimeZone()), end,
      ttft == nullptr ? "-" : DurationText(Num(*ttft)), DurationText(Num(request.at("total_ms"))),
      Int(request.at("prompt_tokens")), Int(request.at("tokens")), via, failures);
}

}  // namespace

void TopScreen::Add(const json::value& told, Seconds* seconds) const {
  for (const json::value& second : told.as_array()) {
    Sizes& sizes = (*seconds)[Int(second.at(0))];
    for (const json::value& size : second.at(1).as_array()) {
      const int64_t floor = std::clamp<int64_t>(Int(size.at(0)), 0, int64_t{1} << 40);
      sizes[floor] += Int(size.at(1));
    }
  }
  seconds->erase(seconds->begin(), seconds->lower_bound(second_ - kWindow));
}

void TopScreen::Show(const std::string& body) {
  json::value told = json::parse(body);
  second_ = Int(told.at("second"));
  Add(told.at("ttft"), &ttft_);
  Add(told.at("itl"), &itl_);
  for (json::value& request : told.at("finished").as_array()) ended_.push_front(std::move(request));
  if (ended_.size() > kMaxEnded) ended_.resize(kMaxEnded);
  cursor_ = Str(told.at("cursor"));
  last_ = std::move(told);
  Text(1, 1);  // reads all that it shows
}

absl::Status TopScreen::Take(const std::string& body) {
  TopScreen next = *this;
  try {  // boost::json reports by exceptions; none leaves this function
    next.Show(body);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the answer is not that of /v1/cluster/live: ", error.what()));
  }
  *this = std::move(next);
  return absl::OkStatus();
}

std::string TopScreen::LatencyLine(const char* name, const Seconds& seconds) const {
  Sizes all;
  int64_t n = 0;
  for (const auto& [second, sizes] : seconds)
    for (const auto& [floor, times] : sizes) {
      all[floor] += times;
      n += times;
    }
  if (n == 0) return absl::StrFormat("%-12s %10s %10s %10s %9d", name, "-", "-", "-", 0);
  return absl::StrFormat("%-12s %10s %10s %10s %9d", name, DurationText(Percentile(all, n, .5)),
                         DurationText(Percentile(all, n, .9)),
                         DurationText(Percentile(all, n, .99)), n);
}

std::string TopScreen::Text(int width, int height) const {
  const json::value& requests = last_.at("requests");
  std::vector<std::string> lines;
  lines.push_back(absl::StrFormat("baton %s  model %s  %s  %d workers", Str(last_.at("version")),
                                  Str(last_.at("model")),
                                  last_.at("draining").as_bool() ? "shutting down"
                                  : last_.at("ready").as_bool()  ? "ready"
                                                                 : "not ready",
                                  last_.at("workers").as_array().size()));
  std::string failovers;
  for (const auto& cause : last_.at("failovers").as_object())
    if (const int64_t n = Int(cause.value()); n > 0)
      absl::StrAppend(&failovers, failovers.empty() ? "" : ", ", std::string(cause.key()), " ", n);
  lines.push_back(absl::StrFormat("requests  %d running  %d waiting  %d ended   failovers  %s",
                                  Int(requests.at("running")), Int(requests.at("waiting")),
                                  Int(requests.at("ended")),
                                  failovers.empty() ? "none" : failovers));
  lines.push_back("");
  lines.push_back(absl::StrFormat("%-12s %10s %10s %10s %9s", absl::StrCat("last ", kWindow, " s"),
                                  "p50", "p90", "p99", "count"));
  lines.push_back(LatencyLine("first token", ttft_));
  lines.push_back(LatencyLine("next token", itl_));
  lines.push_back("");
  lines.push_back(absl::StrFormat("%-12s %-8s %8s  %-23s  %-28s  %6s  %s", "worker", "role",
                                  "queue", "batch", "KV pages", "heard", "links"));
  std::vector<std::string> workers;
  for (const json::value& worker : last_.at("workers").as_array())
    workers.push_back(WorkerLine(worker));
  std::sort(workers.begin(), workers.end());
  lines.insert(lines.end(), workers.begin(), workers.end());
  lines.push_back("");
  lines.push_back(absl::StrFormat("%-8s  %-7s %10s %10s %7s %7s  %s", "arrived", "end",
                                  "first token", "total", "prompt", "answer",
                                  "prefill, decode, failovers"));
  for (const json::value& request : last_.at("running").as_array())
    lines.push_back(RequestLine(request));
  for (const json::value& request : ended_) lines.push_back(RequestLine(request));
  std::string text;
  for (size_t i = 0; i < lines.size() && static_cast<int>(i) < height; ++i)
    absl::StrAppend(&text, lines[i].substr(0, static_cast<size_t>(width)), "\n");
  return text;
}

}  // namespace baton
