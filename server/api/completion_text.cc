#include "server/api/completion_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace baton {
namespace {

StopMatcher MatcherFor(const std::vector<std::string>& stops) {
  auto matcher = StopMatcher::Create(stops);
  CHECK(matcher.ok());  // ParseApiRequest refused what Create would
  return *std::move(matcher);
}

std::string DigestList(const std::vector<uint64_t>& digests) {
  return absl::StrCat("[",
                      absl::StrJoin(digests, ",",
                                    [](std::string* out, uint64_t digest) {
                                      absl::StrAppendFormat(out, "\"%016x\"", digest);
                                    }),
                      "]");
}

std::string IdList(const std::vector<int32_t>& ids) {
  return absl::StrCat("[", absl::StrJoin(ids, ","), "]");
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
      stops_(request.stop),
      stop_tokens_(generate.stop_tokens),
      matcher_(MatcherFor(request.stop)),
      n_prompt_(static_cast<int64_t>(generate.prompt.size())) {
  const char* object = !is_chat() ? "text_completion"
                       : stream_  ? "chat.completion.chunk"
                                  : "chat.completion";
  envelope_ = absl::StrCat("{\"id\":\"", is_chat() ? "chatcmpl-" : "cmpl-", std::string(id),
                           "\",\"object\":\"", object, "\",\"created\":", created,
                           ",\"model\":", JsonString(model.name),
                           ",\"system_fingerprint\":", JsonString(model.system_fingerprint));
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

std::string CompletionText::TokenExtras(const EmitToken& token) {
  std::string extras;
  if (token_ids_) {
    all_ids_.push_back(token.token);
    absl::StrAppend(&extras, ",\"token_ids\":[", token.token, "]");
    if (!prompt_ids_sent_) {
      absl::StrAppend(&extras, ",\"prompt_token_ids\":", IdList(prompt_ids_));
      prompt_ids_sent_ = true;
    }
  }
  if (digests_) {
    all_digests_.push_back(token.digest);
    absl::StrAppend(&extras, ",\"baton_digests\":", DigestList({token.digest}));
  }
  return extras;
}

std::string CompletionText::OnToken(const EmitToken& token) {
  if (stopped_ || stop_token_) return "";
  ++n_tokens_;
  std::string extras = TokenExtras(token);
  if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token.token) != stop_tokens_.end()) {
    stop_token_ = token.token;
    held_extras_ = std::move(extras);
    return "";
  }
  const std::string text = detokenizer_ ? Take(detokenizer_->Push(token.token)) : "";
  if (!stream_) {
    text_ += text;
    return "";
  }
  return RoleEventOnce() + TextEvent(text, "null", "null", extras, "");
}

std::string CompletionText::OnEnd(const EmitEnd& end, absl::Duration text_time) {
  std::string rest;
  if (!stopped_) {
    if (detokenizer_) rest = Take(detokenizer_->Finish());
    if (!stopped_) rest += matcher_.Finish();
  }
  const std::string tail =
      timings_ ? absl::StrCat(",\"timings\":", Timings(end.timeline, text_time)) : "";
  if (stream_) return FinishEvents(rest, end, tail);
  text_ += rest;
  return Body(end, tail);
}

std::string CompletionText::RoleEventOnce() {
  if (!is_chat() || role_sent_) return "";
  role_sent_ = true;
  return absl::StrCat("data: ", envelope_,
                      ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":"
                      "\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

std::string CompletionText::TextEvent(const std::string& text, const std::string& finish_reason,
                                      const std::string& stop_reason, const std::string& extras,
                                      const std::string& tail) const {
  const bool finishes = finish_reason != "null";
  std::string content;
  if (!is_chat()) {
    content = absl::StrCat("\"text\":", JsonString(text));
  } else if (finishes) {
    content = "\"delta\":{}";
  } else {
    content = absl::StrCat("\"delta\":{\"content\":", JsonString(text), "}");
  }
  return absl::StrCat("data: ", envelope_, ",\"choices\":[{\"index\":0,", content,
                      ",\"logprobs\":null,\"finish_reason\":", finish_reason,
                      finishes ? absl::StrCat(",\"stop_reason\":", stop_reason) : "", extras, "}]",
                      continuous_usage_ ? absl::StrCat(",\"usage\":", Usage()) : "", tail, "}\n\n");
}

std::string CompletionText::FinishEvents(const std::string& rest, const EmitEnd& end,
                                         const std::string& tail) {
  std::string events = RoleEventOnce();
  if (is_chat() && !rest.empty()) events += TextEvent(rest, "null", "null", "", "");
  events += TextEvent(rest, JsonString(FinishReason(end.reason)), StopReason(end.reason),
                      held_extras_, tail);
  if (include_usage_) {
    absl::StrAppend(&events, "data: ", envelope_,
                    ",\"choices\":[],\"usage\":", Usage(end.timeline.reused_tokens), "}\n\n");
  }
  return events + "data: [DONE]\n\n";
}

std::string CompletionText::ErrorEvents(const ApiError& error) {
  return absl::StrCat("data: ", ErrorBody(error), "\n\ndata: [DONE]\n\n");
}

std::string CompletionText::Body(const EmitEnd& end, const std::string& tail) const {
  const std::string content =
      is_chat()
          ? absl::StrCat("\"message\":{\"role\":\"assistant\",\"content\":", JsonString(text_), "}")
          : absl::StrCat("\"text\":", JsonString(text_));
  std::string extras;
  if (token_ids_) {
    absl::StrAppend(&extras, ",\"token_ids\":", IdList(all_ids_),
                    ",\"prompt_token_ids\":", IdList(prompt_ids_));
  }
  if (digests_) absl::StrAppend(&extras, ",\"baton_digests\":", DigestList(all_digests_));
  return absl::StrCat(envelope_, ",\"choices\":[{\"index\":0,", content,
                      ",\"logprobs\":null,\"finish_reason\":", JsonString(FinishReason(end.reason)),
                      ",\"stop_reason\":", StopReason(end.reason), extras,
                      "}],\"usage\":", Usage(end.timeline.reused_tokens), tail, "}");
}

std::string_view CompletionText::FinishReason(EndReason reason) const {
  if (stopped_ || reason == EndReason::kStopToken) return "stop";
  if (reason == EndReason::kLength) return "length";
  return reason == EndReason::kCancelled ? "abort" : "error";
}

// As vLLM: the stop string, the id of a stop token that the client asked for, else null.
std::string CompletionText::StopReason(EndReason reason) const {
  if (stopped_) return JsonString(stops_[static_cast<size_t>(stop_index_)]);
  if (reason != EndReason::kStopToken || !stop_token_) return "null";
  const std::vector<int32_t>& eos = model_.eos_tokens;
  const bool is_eos = std::find(eos.begin(), eos.end(), *stop_token_) != eos.end();
  return is_eos ? "null" : absl::StrCat(*stop_token_);
}

std::string CompletionText::Usage(std::optional<int32_t> reused_tokens) const {
  return absl::StrCat(
      "{\"prompt_tokens\":", n_prompt_, ",\"completion_tokens\":", n_tokens_,
      ",\"total_tokens\":", n_prompt_ + n_tokens_,
      reused_tokens
          ? absl::StrCat(",\"prompt_tokens_details\":{\"cached_tokens\":", *reused_tokens, "}")
          : "",
      ",\"completion_tokens_details\":{\"reasoning_tokens\":0}}");
}

std::string CompletionText::Timings(const Timeline& timeline, absl::Duration text_time) const {
  const auto ms = [](absl::Duration d) {
    return absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(d));
  };
  return absl::StrCat(
      "{\"prompt_n\":", n_prompt_, ",\"predicted_n\":", n_tokens_, ",\"text_ms\":", ms(text_time),
      ",\"queue_ms\":", ms(timeline.router_queue),
      ",\"prefill_queue_ms\":", ms(timeline.prefill_queue),
      ",\"prefill_ms\":", ms(timeline.prefill), ",\"kv_transfer_ms\":", ms(timeline.transfer),
      ",\"decode_queue_ms\":", ms(timeline.decode_queue), ",\"decode_ms\":", ms(timeline.decode),
      ",\"ttft_ms\":", ms(timeline.ttft), ",\"total_ms\":", ms(timeline.total),
      ",\"unaccounted_ms\":", ms(timeline.unaccounted()),
      timeline.prefill_heads.empty()
          ? ""
          : absl::StrCat(",\"prefill_heads\":", JsonString(timeline.prefill_heads)),
      ",\"prefill_worker\":", JsonString(timeline.prefill_worker),
      ",\"decode_worker\":", JsonString(timeline.decode_worker),
      ",\"attempts\":", timeline.attempts, "}");
}

}  // namespace baton
