#include "tests/e2e/chaos/exchange.h"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

namespace json = boost::json;

const json::value* Member(const json::value* value, const char* name) {
  const json::object* object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}

std::string Text(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

double Number(const json::value* value) {
  json::error_code bad;
  const double number = value == nullptr ? 0 : value->to_number<double>(bad);
  return bad ? 0 : number;
}

// The list is beside the choices of a chat, and in the choice of a completion.
void TakePromptLogprobs(const json::value* list, Answer* answer) {
  if (list != nullptr) answer->prompt_logprobs += json::serialize(*list);
}

// Appends the content of one choice. True: it had tokens.
bool TakeChoice(const json::value& choice, Exchange* out) {
  Answer& answer = out->answer;
  answer.text += Text(Member(&choice, "text"));
  answer.text += Text(Member(Member(&choice, "delta"), "content"));
  answer.text += Text(Member(Member(&choice, "message"), "content"));
  TakePromptLogprobs(Member(&choice, "prompt_logprobs"), &answer);
  const size_t before = answer.tokens.size();
  if (const auto* ids = Member(&choice, "token_ids"); ids != nullptr && ids->is_array()) {
    for (const json::value& id : ids->get_array()) {
      answer.tokens.push_back(static_cast<int64_t>(Number(&id)));
    }
  }
  if (const auto* list = Member(&choice, "baton_digests"); list != nullptr && list->is_array()) {
    for (const json::value& digest : list->get_array()) answer.digests.push_back(Text(&digest));
  }
  if (const std::string reason = Text(Member(&choice, "finish_reason")); !reason.empty()) {
    ++out->n_finishes;
    answer.finish_reason = reason;
  }
  return answer.tokens.size() > before;
}

void TakeTimings(const json::value* timings, Exchange* out) {
  if (timings == nullptr) return;
  out->attempts = static_cast<int>(Number(Member(timings, "attempts")));
  out->ttft_ms = Number(Member(timings, "ttft_ms"));
  out->prefill_queue_ms = Number(Member(timings, "prefill_queue_ms"));
  out->prefill_ms = Number(Member(timings, "prefill_ms"));
  out->prefill_worker = Text(Member(timings, "prefill_worker"));
  out->decode_worker = Text(Member(timings, "decode_worker"));
}

// Reads a chunk of a stream or a whole body. True: it had tokens.
bool TakeDocument(std::string_view text, Exchange* out) {
  json::error_code bad;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), bad);
  if (bad || Member(&value, "error") != nullptr) {
    out->error = std::string(text);
    return false;
  }
  if (const auto* usage = Member(&value, "usage"); usage != nullptr && usage->is_object()) {
    out->answer.n_counted = static_cast<int64_t>(Number(Member(usage, "completion_tokens")));
  }
  TakeTimings(Member(&value, "timings"), out);
  TakePromptLogprobs(Member(&value, "prompt_logprobs"), &out->answer);
  const auto* choices = Member(&value, "choices");
  if (choices == nullptr || !choices->is_array()) return false;
  bool brought = false;
  for (const json::value& choice : choices->get_array()) brought |= TakeChoice(choice, out);
  return brought;
}

}  // namespace

Exchange RunExchange(const HttpUrl& url, const ChaosRequest& request, const Manner& manner,
                     absl::Duration hang_limit,
                     const std::function<void(const Exchange&)>& on_token) {
  Exchange out;
  int n_events = 0;
  ClientLimits limits;
  limits.silence = hang_limit;
  limits.total = std::min(manner.leaves_after, hang_limit);
  limits.receive_buffer = manner.receive_buffer;
  const auto on_data = [&](std::string_view data, absl::Time received) {
    if (out.n_done > 0) ++out.n_after_done;
    if (data == "[DONE]") {
      ++out.n_done;
      return true;  // reads to the end of the body, because nothing may follow
    }
    if (TakeDocument(data, &out)) {
      out.token_times.push_back(received);
      if (on_token) on_token(out);
    }
    if (++n_events >= manner.leaves_after_events) {
      out.left = true;
      return false;
    }
    if (n_events == manner.stops_reading_after) absl::SleepFor(manner.stops_reading_for);
    if (manner.reads_every > absl::ZeroDuration()) absl::SleepFor(manner.reads_every);
    return true;
  };
  out.sent = absl::Now();
  const auto response = HttpClient(url, limits).Post(request.path, request.body, on_data);
  out.ended = absl::Now();
  if (!response.ok()) {
    out.left = out.left || out.ended - out.sent >= manner.leaves_after;
    if (!out.left) out.error = std::string(response.status().message());
    return out;
  }
  out.http_status = response->status;
  if (response->status != 200) {
    out.error = absl::StrFormat("HTTP %d %s", response->status, response->body);
  } else if (!request.stream) {
    TakeDocument(response->body, &out);
    out.n_done = 1;
  }
  return out;
}

}  // namespace baton
