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
  boost::json::object body{{"prompt", std::move(prompt)},
                           {"max_tokens", request.max_tokens},
                           {"temperature", 0},
                           {"ignore_eos", true},
                           {"stream", true},
                           {"stream_options", {{"include_usage", true}}}};
  if (request.return_tokens) body["return_token_ids"] = true;
  return boost::json::serialize(body);
}

void TakeUsage(const boost::json::object& usage, Outcome& out) {
  boost::json::error_code bad;
  if (const auto* n = usage.if_contains("completion_tokens"); n != nullptr) {
    out.n_output = n->to_number<int>(bad);
  }
  const auto* details = usage.if_contains("prompt_tokens_details");
  if (details == nullptr || !details->is_object()) return;
  if (const auto* n = details->as_object().if_contains("cached_tokens"); n != nullptr) {
    out.n_cached = n->to_number<int>(bad);
  }
}

// An event may tell the end alone, after the last token's own event.
bool TellsEndAlone(const boost::json::object& choice, size_t n_text) {
  const auto* finish = choice.if_contains("finish_reason");
  return n_text == 0 && finish != nullptr && !finish->is_null();
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
    TakeUsage(usage->as_object(), out);
  }
  const auto* choices = chunk->if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty()) return true;
  const boost::json::object* choice = choices->as_array()[0].if_object();
  if (choice == nullptr) return true;
  size_t n_text = 0;
  if (const auto* text = choice->if_contains("text"); text != nullptr && text->is_string()) {
    out.text.append(text->as_string());
    n_text = text->as_string().size();
  }
  if (const auto* ids = choice->if_contains("token_ids"); ids != nullptr && ids->is_array()) {
    for (const boost::json::value& id : ids->as_array()) {
      out.tokens.push_back(id.to_number<int32_t>(bad));
    }
  }
  if (!TellsEndAlone(*choice, n_text)) out.chunk_times.push_back(received);
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
std::vector<double> Outcome::gaps_ms() const {
  std::vector<double> gaps;
  for (size_t i = 1; i < chunk_times.size(); ++i) gaps.push_back(Gap(*this, i));
  return gaps;
}
std::vector<double> Outcome::itl_ms() const {
  std::vector<double> gaps = gaps_ms();
  if (!gaps.empty()) gaps.erase(gaps.begin());
  return gaps;
}

Outcome RunLoadRequest(const HttpClient& client, const LoadRequest& request,
                       const std::function<void(const Outcome&)>& on_chunk) {
  Outcome out;
  bool done = false;
  const std::string body = Body(request);
  out.n_prompt = static_cast<int>(request.prompt.size());
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
  out.ended = absl::Now();
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

Outcome RunLoadRequestUntil(const HttpUrl& url, const LoadRequest& request, absl::Time deadline) {
  ClientLimits limits;
  limits.total = std::max(deadline - absl::Now(), absl::ZeroDuration());
  Outcome out = RunLoadRequest(HttpClient(url, limits), request);
  out.cut = !out.ok && out.ended >= deadline;
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
