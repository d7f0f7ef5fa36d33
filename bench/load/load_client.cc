#include "bench/load/load_client.h"

#include <algorithm>
#include <boost/json.hpp>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

std::string Body(const LoadRequest& request) {
  boost::json::array prompt(request.prompt.begin(), request.prompt.end());
  return boost::json::serialize(boost::json::object{{"prompt", std::move(prompt)},
                                                    {"max_tokens", request.max_tokens},
                                                    {"temperature", 0},
                                                    {"ignore_eos", true},
                                                    {"stream", true},
                                                    {"stream_options", {{"include_usage", true}}}});
}

// Reads one chunk of the stream into the outcome. False: an error object.
bool TakeChunk(std::string_view data, absl::Time received, Outcome& out) {
  boost::json::error_code bad;
  const boost::json::value value =
      boost::json::parse(boost::json::string_view(data.data(), data.size()), bad);
  const boost::json::object* chunk = bad ? nullptr : value.if_object();
  if (chunk == nullptr || chunk->contains("error")) {
    out.error = std::string(data);
    return false;
  }
  if (const auto* usage = chunk->if_contains("usage"); usage != nullptr && usage->is_object()) {
    if (const auto* n = usage->as_object().if_contains("completion_tokens"); n != nullptr) {
      out.n_output = n->to_number<int>(bad);
    }
  }
  const auto* choices = chunk->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return true;
  const boost::json::value& choice = choices->as_array()[0];
  const auto* text = choice.is_object() ? choice.as_object().if_contains("text") : nullptr;
  if (text != nullptr && text->is_string()) out.text.append(text->as_string());
  out.chunk_times.push_back(received);
  return true;
}

double Gap(const Outcome& out, size_t i) {
  return absl::ToDoubleMilliseconds(out.chunk_times[i] - out.chunk_times[i - 1]);
}

}  // namespace

double Outcome::ttft_ms() const {
  return chunk_times.empty() ? 0 : absl::ToDoubleMilliseconds(chunk_times.front() - sent);
}
double Outcome::second_gap_ms() const { return chunk_times.size() < 2 ? -1 : Gap(*this, 1); }
double Outcome::e2el_ms() const {
  return chunk_times.empty() ? 0 : absl::ToDoubleMilliseconds(chunk_times.back() - sent);
}
std::vector<double> Outcome::itl_ms() const {
  std::vector<double> gaps;
  for (size_t i = 2; i < chunk_times.size(); ++i) gaps.push_back(Gap(*this, i));
  return gaps;
}

Outcome RunLoadRequest(const HttpClient& client, const LoadRequest& request,
                       const std::function<void(const Outcome&)>& on_chunk) {
  Outcome out;
  bool done = false;
  const std::string body = Body(request);
  out.sent = absl::Now();
  const absl::StatusOr<HttpResponse> response =
      client.Post("/v1/completions", body, [&](std::string_view data, absl::Time received) {
        if (data == "[DONE]") {
          done = true;
          return false;
        }
        if (!TakeChunk(data, received, out)) return false;
        if (on_chunk) on_chunk(out);
        return true;
      });
  if (!response.ok()) {
    out.error = std::string(response.status().ToString());
  } else if (response->status != 200) {
    out.error = absl::StrFormat("HTTP %d %s", response->status, response->body);
  } else if (out.error.empty() && !done) {
    out.error = "stream ended without [DONE]";
  } else if (out.error.empty() && out.n_output != request.max_tokens) {
    out.error = absl::StrFormat("%d tokens instead of %d", out.n_output, request.max_tokens);
  }
  out.ok = out.error.empty();
  return out;
}

Distribution::Distribution(std::vector<double> samples) : values(std::move(samples)) {
  std::sort(values.begin(), values.end());
}

double Distribution::mean() const {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Distribution::percentile(double percent) const {
  if (values.empty()) return 0;
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

}  // namespace baton
