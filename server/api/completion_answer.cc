#include "server/api/completion_answer.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "server/api/sse_event.h"

namespace baton {
namespace {

// The list with the one choice; `fill` writes what follows its index.
template <typename Fill>
void WriteChoice(JsonWriter& json, const Fill& fill) {
  json.Array("choices", [&] {
    json.Object([&] {
      json.Field("index", 0);
      fill();
    });
  });
}

void WriteIds(JsonWriter& json, std::string_view key, const std::vector<int32_t>& ids) {
  json.Array(key, [&] {
    for (const int32_t id : ids) json.Value(id);
  });
}

void WriteDigests(JsonWriter& json, const std::vector<uint64_t>& digests) {
  json.Array("baton_digests", [&] {
    for (const uint64_t digest : digests) json.Value(absl::StrFormat("%016x", digest));
  });
}

}  // namespace

CompletionAnswer::CompletionAnswer(const CompletionForm& form, const ServedModel& model,
                                   const ApiRequest& request, const GenerateRequest& generate,
                                   std::string_view id, int64_t created)
    : Answer(GeneratedText(model, request, generate)),
      form_(form),
      model_(model),
      stream_(request.stream),
      include_usage_(request.include_usage),
      continuous_usage_(request.continuous_usage),
      token_ids_(request.return_token_ids),
      timings_(request.timings),
      digests_(request.digests),
      id_(form.id_prefix + std::string(id)),
      created_(created) {
  if (token_ids_) prompt_ids_ = generate.prompt;
}

std::string CompletionAnswer::OnToken(const EmitToken& token) {
  if (text_.ended()) return "";
  const std::string piece = text_.Push(token.token);
  if (text_.stop_token()) stop_token_ = token;
  if (stream_) return stop_token_ ? "" : BeginOnce() + Event(piece, &token, nullptr);
  whole_text_ += piece;
  if (token_ids_) all_ids_.push_back(token.token);
  if (digests_) all_digests_.push_back(token.digest);
  return "";
}

std::string CompletionAnswer::OnEnd(const EmitEnd& end, absl::Duration text_time) {
  const std::string rest = text_.Finish();
  if (stream_) return FinishEvents(rest, {end, text_time});
  whole_text_ += rest;
  return Body({end, text_time});
}

std::string CompletionAnswer::OnError(const ApiError& error) const {
  return SseEvent(ErrorBody(error)) + kSseDone;
}

template <typename Fill>
std::string CompletionAnswer::Envelope(const Fill& fill) const {
  return JsonObject([&](JsonWriter& json) {
    json.Field("id", id_);
    json.Field("object", stream_ ? form_.chunk_object : form_.object);
    json.Field("created", created_);
    json.Field("model", model_.name);
    json.Field("system_fingerprint", model_.system_fingerprint);
    fill(json);
  });
}

std::string CompletionAnswer::BeginOnce() {
  if (form_.begin == nullptr || has_begun_) return "";
  has_begun_ = true;
  return SseEvent(Envelope([&](JsonWriter& json) {
    WriteChoice(json, [&] {
      form_.begin(json);
      json.Field("logprobs", nullptr);
      json.Field("finish_reason", nullptr);
    });
  }));
}

std::string CompletionAnswer::Event(const std::string& text, const EmitToken* token,
                                    const Ending* ending) const {
  return SseEvent(Envelope([&](JsonWriter& json) {
    WriteChoice(json, [&] {
      if (ending != nullptr && form_.finish != nullptr) {
        form_.finish(json);
      } else {
        form_.piece(json, text);
      }
      json.Field("logprobs", nullptr);
      WriteFinish(json, ending);
      if (token == nullptr) return;
      if (token_ids_) {
        WriteIds(json, "token_ids", {token->token});
        if (text_.n_tokens() == 1) WriteIds(json, "prompt_token_ids", prompt_ids_);
      }
      if (digests_) WriteDigests(json, {token->digest});
    });
    if (continuous_usage_) WriteUsage(json, std::nullopt);
    WriteTimings(json, ending);
  }));
}

std::string CompletionAnswer::FinishEvents(const std::string& rest, const Ending& ending) {
  std::string events = BeginOnce();
  if (form_.finish != nullptr && !rest.empty()) events += Event(rest, nullptr, nullptr);
  events += Event(rest, stop_token_ ? &*stop_token_ : nullptr, &ending);
  if (include_usage_) {
    events += SseEvent(Envelope([&](JsonWriter& json) {
      json.Array("choices", [] {});
      WriteUsage(json, ending.end.timeline.reused_tokens);
    }));
  }
  return events + kSseDone;
}

std::string CompletionAnswer::Body(const Ending& ending) const {
  return Envelope([&](JsonWriter& json) {
    WriteChoice(json, [&] {
      form_.whole(json, whole_text_);
      json.Field("logprobs", nullptr);
      WriteFinish(json, &ending);
      if (token_ids_) {
        WriteIds(json, "token_ids", all_ids_);
        WriteIds(json, "prompt_token_ids", prompt_ids_);
      }
      if (digests_) WriteDigests(json, all_digests_);
    });
    WriteUsage(json, ending.end.timeline.reused_tokens);
    WriteTimings(json, &ending);
  });
}

// finish_reason and stop_reason. The latter as vLLM: the stop string, the id of a stop token that
// the client asked for, else null.
void CompletionAnswer::WriteFinish(JsonWriter& json, const Ending* ending) const {
  if (ending == nullptr) {
    json.Field("finish_reason", nullptr);
    return;
  }
  json.Field("finish_reason", text_.FinishReason(ending->end.reason));
  const std::vector<int32_t>& eos = model_.eos_tokens;
  if (text_.stopped()) {
    json.Field("stop_reason", *text_.stop_string());
  } else if (ending->end.reason == EndReason::kStopToken && stop_token_ &&
             std::find(eos.begin(), eos.end(), stop_token_->token) == eos.end()) {
    json.Field("stop_reason", stop_token_->token);
  } else {
    json.Field("stop_reason", nullptr);
  }
}

void CompletionAnswer::WriteUsage(JsonWriter& json, std::optional<int32_t> reused_tokens) const {
  json.Object("usage", [&] {
    json.Field("prompt_tokens", text_.n_prompt());
    json.Field("completion_tokens", text_.n_tokens());
    json.Field("total_tokens", text_.n_prompt() + text_.n_tokens());
    if (reused_tokens) {
      json.Object("prompt_tokens_details", [&] { json.Field("cached_tokens", *reused_tokens); });
    }
    json.Object("completion_tokens_details", [&] { json.Field("reasoning_tokens", 0); });
  });
}

void CompletionAnswer::WriteTimings(JsonWriter& json, const Ending* ending) const {
  if (!timings_ || ending == nullptr) return;
  const Timeline& timeline = ending->end.timeline;
  const auto ms = [&](std::string_view key, absl::Duration duration) {
    json.FixedField(key, absl::ToDoubleMilliseconds(duration), 3);
  };
  json.Object("timings", [&] {
    json.Field("prompt_n", text_.n_prompt());
    json.Field("predicted_n", text_.n_tokens());
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
    if (!timeline.prefill_heads.empty()) json.Field("prefill_heads", timeline.prefill_heads);
    json.Field("prefill_worker", timeline.prefill_worker);
    json.Field("decode_worker", timeline.decode_worker);
    json.Field("attempts", timeline.attempts);
  });
}

}  // namespace baton
