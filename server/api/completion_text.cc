#include "server/api/completion_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "server/api/json_writer.h"
#include "server/api/sse_event.h"

namespace baton {
namespace {

StopMatcher MatcherFor(const std::vector<std::string>& stops) {
  auto matcher = StopMatcher::Create(stops);
  CHECK(matcher.ok());  // ParseApiRequest refused what Create would
  return *std::move(matcher);
}

// The list with the one choice; `fill` writes what follows its index.
template <typename Fill>
void WriteChoice(JsonWriter* json, const Fill& fill) {
  json->Array("choices", [&] {
    json->Object([&] {
      json->Field("index", 0);
      fill();
    });
  });
}

void WriteIds(JsonWriter* json, std::string_view key, const std::vector<int32_t>& ids) {
  json->Array(key, [&] {
    for (const int32_t id : ids) json->Value(id);
  });
}

void WriteDigests(JsonWriter* json, const std::vector<uint64_t>& digests) {
  json->Array("baton_digests", [&] {
    for (const uint64_t digest : digests) json->Value(absl::StrFormat("%016x", digest));
  });
}

}  // namespace

CompletionText::CompletionText(const ServedModel& model, const ApiRequest& request,
                               const GenerateRequest& generate, std::string_view id,
                               int64_t created)
    : model_(model),
      endpoint_(request.endpoint),
      stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.continuous_usage),
      include_stop_(request.include_stop),
      token_ids_(request.return_token_ids),
      timings_(request.timings),
      digests_(request.digests),
      id_(absl::StrCat(is_chat() ? "chatcmpl-" : "cmpl-", std::string(id))),
      created_(created),
      stops_(request.stop),
      stop_tokens_(generate.stop_tokens),
      matcher_(MatcherFor(request.stop)),
      n_prompt_(static_cast<int64_t>(generate.prompt.size())) {
  if (model.tokenizer != nullptr) {
    DetokenizerOptions options;
    options.skip_special_tokens = request.skip_special_tokens;
    options.starts_text = is_chat();
    detokenizer_.emplace(model.tokenizer.get(), options);
  }
  if (token_ids_) prompt_ids_ = generate.prompt;
}

std::string CompletionText::Take(std::string_view piece) {
  StopMatcher::Result found = matcher_.Push(piece);
  if (found.stop >= 0) {
    stopped_ = true;
    stop_index_ = found.stop;
    if (include_stop_) found.text += stops_[static_cast<size_t>(found.stop)];
  }
  return std::move(found.text);
}

std::string CompletionText::OnToken(const EmitToken& token) {
  if (stopped_ || stop_token_) return "";
  ++n_tokens_;
  if (!stream_ && token_ids_) all_ids_.push_back(token.token);
  if (!stream_ && digests_) all_digests_.push_back(token.digest);
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token.token) != stop_tokens_.end()) {
    stop_token_ = token;
    return "";
  }
  const std::string text = detokenizer_ ? Take(detokenizer_->Push(token.token)) : "";
  if (!stream_) {
    text_ += text;
    return "";
  }
  return RoleEventOnce() + TextEvent(text, &token, nullptr);
}

std::string CompletionText::OnEnd(const EmitEnd& end, absl::Duration text_time) {
  std::string rest;
  if (!stopped_) {
    if (detokenizer_) rest = Take(detokenizer_->Finish());
    if (!stopped_) rest += matcher_.Finish();
  }
  if (stream_) return FinishEvents(rest, {end, text_time});
  text_ += rest;
  return Body({end, text_time});
}

template <typename Fill>
std::string CompletionText::Envelope(const Fill& fill) const {
  return JsonObject([&](JsonWriter& json) {
    json.Field("id", id_);
    json.Field("object", !is_chat() ? "text_completion"
                         : stream_  ? "chat.completion.chunk"
                                    : "chat.completion");
    json.Field("created", created_);
    json.Field("model", model_.name);
    json.Field("system_fingerprint", model_.system_fingerprint);
    fill(json);
  });
}

std::string CompletionText::RoleEventOnce() {
  if (!is_chat() || role_sent_) return "";
  role_sent_ = true;
  return SseEvent(Envelope([&](JsonWriter& json) {
    WriteChoice(&json, [&] {
      json.Object("delta", [&] {
        json.Field("role", "assistant");
        json.Field("content", "");
      });
      json.Field("logprobs", nullptr);
      json.Field("finish_reason", nullptr);
    });
  }));
}

std::string CompletionText::TextEvent(const std::string& text, const EmitToken* token,
                                      const Ending* ending) const {
  return SseEvent(Envelope([&](JsonWriter& json) {
    WriteChoice(&json, [&] {
      if (is_chat()) {
        json.Object("delta", [&] {
          if (ending == nullptr) json.Field("content", text);
        });
      } else {
        json.Field("text", text);
      }
      json.Field("logprobs", nullptr);
      WriteFinish(&json, ending);
      if (token == nullptr) return;
      if (token_ids_) {
        WriteIds(&json, "token_ids", {token->token});
        if (n_tokens_ == 1) WriteIds(&json, "prompt_token_ids", prompt_ids_);
      }
      if (digests_) WriteDigests(&json, {token->digest});
    });
    if (continuous_usage_) WriteUsage(&json, std::nullopt);
    WriteTimings(&json, ending);
  }));
}

std::string CompletionText::FinishEvents(const std::string& rest, const Ending& ending) {
  std::string events = RoleEventOnce();
  if (is_chat() && !rest.empty()) events += TextEvent(rest, nullptr, nullptr);
  events += TextEvent(rest, stop_token_ ? &*stop_token_ : nullptr, &ending);
  if (include_usage_) {
    events += SseEvent(Envelope([&](JsonWriter& json) {
      json.Array("choices", [] {});
      WriteUsage(&json, ending.end.timeline.reused_tokens);
    }));
  }
  return events + kSseDone;
}

std::string CompletionText::ErrorEvents(const ApiError& error) {
  return SseEvent(ErrorBody(error)) + kSseDone;
}

std::string CompletionText::Body(const Ending& ending) const {
  return Envelope([&](JsonWriter& json) {
    WriteChoice(&json, [&] {
      if (is_chat()) {
        json.Object("message", [&] {
          json.Field("role", "assistant");
          json.Field("content", text_);
        });
      } else {
        json.Field("text", text_);
      }
      json.Field("logprobs", nullptr);
      WriteFinish(&json, &ending);
      if (token_ids_) {
        WriteIds(&json, "token_ids", all_ids_);
        WriteIds(&json, "prompt_token_ids", prompt_ids_);
      }
      if (digests_) WriteDigests(&json, all_digests_);
    });
    WriteUsage(&json, ending.end.timeline.reused_tokens);
    WriteTimings(&json, &ending);
  });
}

std::string_view CompletionText::FinishReason(EndReason reason) const {
  if (stopped_ || reason == EndReason::kStopToken) return "stop";
  if (reason == EndReason::kLength) return "length";
  return reason == EndReason::kCancelled ? "abort" : "error";
}

// finish_reason and stop_reason. The latter as vLLM: the stop string, the id of a stop token that
// the client asked for, else null.
void CompletionText::WriteFinish(JsonWriter* json, const Ending* ending) const {
  if (ending == nullptr) {
    json->Field("finish_reason", nullptr);
    return;
  }
  json->Field("finish_reason", FinishReason(ending->end.reason));
  const std::vector<int32_t>& eos = model_.eos_tokens;
  if (stopped_) {
    json->Field("stop_reason", stops_[static_cast<size_t>(stop_index_)]);
  } else if (ending->end.reason == EndReason::kStopToken && stop_token_ &&
             std::find(eos.begin(), eos.end(), stop_token_->token) == eos.end()) {
    json->Field("stop_reason", stop_token_->token);
  } else {
    json->Field("stop_reason", nullptr);
  }
}

void CompletionText::WriteUsage(JsonWriter* json, std::optional<int32_t> reused_tokens) const {
  json->Object("usage", [&] {
    json->Field("prompt_tokens", n_prompt_);
    json->Field("completion_tokens", n_tokens_);
    json->Field("total_tokens", n_prompt_ + n_tokens_);
    if (reused_tokens) {
      json->Object("prompt_tokens_details", [&] { json->Field("cached_tokens", *reused_tokens); });
    }
    json->Object("completion_tokens_details", [&] { json->Field("reasoning_tokens", 0); });
  });
}

void CompletionText::WriteTimings(JsonWriter* json, const Ending* ending) const {
  if (!timings_ || ending == nullptr) return;
  const Timeline& timeline = ending->end.timeline;
  const auto ms = [&](std::string_view key, absl::Duration duration) {
    json->FixedField(key, absl::ToDoubleMilliseconds(duration), 3);
  };
  json->Object("timings", [&] {
    json->Field("prompt_n", n_prompt_);
    json->Field("predicted_n", n_tokens_);
    ms("text_ms", ending->text_time);
    ms("queue_ms", timeline.router_queue);
    ms("prefill_queue_ms", timeline.prefill_queue);
    ms("prefill_ms", timeline.prefill);
    ms("kv_transfer_ms", timeline.transfer);
    ms("decode_queue_ms", timeline.decode_queue);
    ms("decode_ms", timeline.decode);
    ms("ttft_ms", timeline.ttft);
    ms("total_ms", timeline.total);
    ms("unaccounted_ms", timeline.unaccounted());
    if (!timeline.prefill_heads.empty()) json->Field("prefill_heads", timeline.prefill_heads);
    json->Field("prefill_worker", timeline.prefill_worker);
    json->Field("decode_worker", timeline.decode_worker);
    json->Field("attempts", timeline.attempts);
  });
}

}  // namespace baton
