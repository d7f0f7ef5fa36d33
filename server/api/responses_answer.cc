#include "server/api/responses_answer.h"

#include <boost/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/sse_event.h"

namespace baton {
namespace {

// The request without what the answer does not tell: prompts may be long.
ApiRequest WhatIsTold(ApiRequest request) {
  // Swapping frees the memory, which clear() keeps.
  const auto drop = [](std::string* text) { std::string().swap(*text); };
  for (std::string* text : {&request.messages, &request.messages_in_parts, &request.tools})
    drop(text);
  if (!request.store) {
    drop(&request.response.conversation);
    drop(&request.response.input);
  }
  return request;
}

// Places in what WritePrompt returns.
enum First : size_t { kFirstEvents, kFirstBody, kStoredInput, kNFirst };

template <typename Fill>
std::string NumberedEvent(std::string_view type, int64_t number, const Fill& fill) {
  return SseEvent(type, JsonObject([&](JsonWriter& json) {
                    json.Field("type", type);
                    json.Field("sequence_number", number);
                    fill(json);
                  }));
}

// Bytes, roughly, that an object tells of its request.
size_t ToldBytes(const ApiRequest& request) {
  const ResponseRequest& fields = request.response;
  return fields.instructions.size() + fields.tools.size() + fields.text_format.size() +
         fields.tool_choice.size() + request.metadata.size();
}

void WriteTextOrNull(JsonWriter& json, std::string_view key, const std::string& value) {
  json.JsonField(key, value.empty() ? "null" : value);
}

// Keeps the tokens that the text is made of: the others are markers, or of reasoning.
std::vector<ReportedToken> OfText(std::vector<ReportedToken> tokens, std::string_view text) {
  std::vector<ReportedToken> taken;
  for (ReportedToken& token : tokens) {
    if (token.bytes.empty() || !text.starts_with(token.bytes)) continue;
    text.remove_prefix(token.bytes.size());
    taken.push_back(std::move(token));
  }
  return taken;
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(const ServedModel& model, const ApiRequest& request,
                                 const std::vector<PreparedPrompt>& prompts,
                                 const AnswerAbout& about)
    : Answer(model, request, prompts),
      model_(model),
      request_(WhatIsTold(request)),
      about_(about),
      temperature_(request.temperature.value_or(
          static_cast<double>(prompts.front().generate.sampling.temperature))),
      top_p_(request.top_p.value_or(static_cast<double>(prompts.front().generate.sampling.top_p))),
      logprob_form_({.tokenizer = model.tokenizer.get()}),
      event_form_({.tokenizer = model.tokenizer.get(), .with_bytes = false}) {}

std::string ResponsesAnswer::OnToken(size_t choice, const EmitToken& token) {
  GeneratedText& text = texts_[choice];
  if (text.ended()) return "";
  AnswerPiece piece = text.Push(token.token);
  if (request_.top_logprobs && !text.stop_token())
    logprobs_.Add(token, text.token_bytes(), text.token_offset());
  return Take(std::move(piece));
}

std::string ResponsesAnswer::OnChoiceEnd(size_t choice, const EmitEnd& end) {
  std::string events = Take(texts_[choice].Finish());
  reused_tokens_ = end.timeline.reused_tokens;
  const bool is_cut = end.reason == EndReason::kLength && !texts_[choice].stopped();
  if (!is_over()) status_ = is_cut ? "incomplete" : "completed";
  // An answer has an item, for clients that read the first one.
  if (items_.empty() && status_ == "completed") events += Open(ResponseItem::kMessage);
  return events;
}

std::string ResponsesAnswer::OnEnd() {
  std::string events = Begin(/*at_end=*/true);
  events += CloseItem();
  if (request_.store && about_.store != nullptr) to_store_ = ToStore();
  if (!request_.stream) return Body();
  return events +
         ResponseEvent(status_ == "completed" ? "response.completed" : "response.incomplete");
}

std::string ResponsesAnswer::OnError(const ApiError& error) {
  std::string events = Begin(/*at_end=*/true);
  if (!cancelled()) {
    status_ = "failed";
    error_ = error;
  }
  events += CloseItem();
  if (request_.store && about_.store != nullptr) to_store_ = ToStore();
  if (!request_.stream) return "";
  return events + ResponseEvent(cancelled() ? "response.incomplete" : "response.failed");
}

void ResponsesAnswer::Cancel() {
  Answer::Cancel();
  status_ = "cancelled";
}

std::string ResponsesAnswer::Take(AnswerPiece piece) {
  std::vector<ReportedToken> told = logprobs_.TakeUpTo(texts_.front().n_told());
  std::string events = Begin();
  if (!piece.reasoning.empty()) {
    events += Open(ResponseItem::kReasoning);
    events += Add(piece.reasoning);
  }
  if (!piece.content.empty()) {
    events += Open(ResponseItem::kMessage);
    events += Add(piece.content, OfText(std::move(told), piece.content));
  }
  for (CallPiece& call : piece.calls) {
    if (!call.name.empty()) call.id = CallId(about_.unique_id, call.index);
    const bool is_custom = request_.response.custom_tools.contains(call.name) ||
                           (is_open_ && items_.back().kind == ResponseItem::kCustomCall &&
                            items_.back().call == call.index);
    events += Open(is_custom ? ResponseItem::kCustomCall : ResponseItem::kFunctionCall, &call);
    if (!call.arguments.empty()) events += Add(call.arguments);
  }
  return events;
}

// One that is cancelled before its first token begins with its end: nothing of it is stored before.
std::string ResponsesAnswer::Begin(bool at_end) {
  if (has_begun_ || (is_over() && !at_end)) return "";
  has_begun_ = true;
  if (first_.empty()) first_ = WritePrompt(0, {});
  auto first = std::exchange(first_, {});
  if (!at_end && stores()) {
    about_.store->Put({.kind = StoredKind::kResponse,
                       .id = id(),
                       .tenant = about_.tenant,
                       .body = std::move(first[kFirstBody]),
                       .input = std::move(first[kStoredInput]),
                       .created = about_.created});
  }
  if (!request_.stream) return "";
  sequence_ = 2;
  prompt_bytes_ += 2 * ToldBytes(request_);
  return std::move(first[kFirstEvents]);
}

// Goes on with the open item if it is of that kind, and the same call.
std::string ResponsesAnswer::Open(ResponseItem::Kind kind, const CallPiece* call) {
  if (is_open_ && items_.back().kind == kind &&
      (call == nullptr || items_.back().call == call->index))
    return "";
  std::string events = CloseItem();
  ResponseItem& item = items_.emplace_back();
  is_open_ = true;
  item.kind = kind;
  item.id = absl::StrCat(std::string(ItemPrefix(kind)), about_.unique_id, "_", items_.size() - 1);
  if (call != nullptr) {
    item.call = call->index;
    item.name = call->name;
    item.call_id = call->id;
  }
  events += Event("response.output_item.added", [&](JsonWriter& json) {
    json.Field("output_index", items_.size() - 1);
    json.Object("item", [&] { WriteItem(json, item, "in_progress", logprob_form_); });
  });
  if (call != nullptr) return events;
  return events + PartEvent("response.content_part.added", [&](JsonWriter& json) {
           json.Object("part", [&] { WritePart(json, item, logprob_form_); });
         });
}

std::string ResponsesAnswer::Add(const std::string& text, std::vector<ReportedToken> tokens) {
  ResponseItem& item = items_.back();
  item.text += text;
  const auto delta = [&](JsonWriter& json) { json.Field("delta", text); };
  switch (item.kind) {
    case ResponseItem::kReasoning:
      return PartEvent("response.reasoning_text.delta", delta);
    case ResponseItem::kFunctionCall:
      return ItemEvent("response.function_call_arguments.delta", delta);
    case ResponseItem::kCustomCall:
      return "";  // the text is known when the arguments are whole
    case ResponseItem::kMessage:
      break;
  }
  item.logprobs.insert(item.logprobs.end(), tokens.begin(), tokens.end());
  return PartEvent("response.output_text.delta", [&](JsonWriter& json) {
    delta(json);
    json.Array("logprobs", [&] { WriteTokenLogprobs(json, event_form_, tokens); });
  });
}

std::string ResponsesAnswer::CloseItem() {
  if (!std::exchange(is_open_, false) || !request_.stream) return "";
  const ResponseItem& item = items_.back();
  std::string events;
  switch (item.kind) {
    case ResponseItem::kReasoning:
      events = PartEvent("response.reasoning_text.done",
                         [&](JsonWriter& json) { json.Field("text", item.text); });
      break;
    case ResponseItem::kMessage:
      events = PartEvent("response.output_text.done", [&](JsonWriter& json) {
        json.Field("text", item.text);
        json.Array("logprobs", [&] { WriteTokenLogprobs(json, event_form_, item.logprobs); });
      });
      break;
    case ResponseItem::kFunctionCall:
      events = ItemEvent("response.function_call_arguments.done", [&](JsonWriter& json) {
        json.Field("name", item.name);
        json.Field("arguments", item.text);
      });
      break;
    case ResponseItem::kCustomCall:
      const std::string input = CustomInputOf(item.text);
      events = ItemEvent("response.custom_tool_call_input.delta",
                         [&](JsonWriter& json) { json.Field("delta", input); });
      events += ItemEvent("response.custom_tool_call_input.done",
                          [&](JsonWriter& json) { json.Field("input", input); });
  }
  if (item.call < 0) {
    events += PartEvent("response.content_part.done", [&](JsonWriter& json) {
      json.Object("part", [&] { WritePart(json, item, logprob_form_); });
    });
  }
  const bool is_whole = status_ == "in_progress" || status_ == "completed";
  return events + Event("response.output_item.done", [&](JsonWriter& json) {
           json.Field("output_index", items_.size() - 1);
           json.Object("item", [&] {
             WriteItem(json, item, is_whole ? "completed" : "incomplete", logprob_form_);
           });
         });
}

template <typename Fill>
std::string ResponsesAnswer::Event(std::string_view type, const Fill& fill) {
  return request_.stream ? NumberedEvent(type, sequence_++, fill) : "";
}

template <typename Fill>
std::string ResponsesAnswer::ItemEvent(std::string_view type, const Fill& fill) {
  return Event(type, [&](JsonWriter& json) {
    json.Field("item_id", items_.back().id);
    json.Field("output_index", items_.size() - 1);
    fill(json);
  });
}

template <typename Fill>
std::string ResponsesAnswer::PartEvent(std::string_view type, const Fill& fill) {
  return ItemEvent(type, [&](JsonWriter& json) {
    json.Field("content_index", 0);
    fill(json);
  });
}

std::string ResponsesAnswer::ResponseEvent(std::string_view type) {
  if (request_.stream) prompt_bytes_ += ToldBytes(request_);
  return Event(type, [&](JsonWriter& json) { json.JsonField("response", Body()); });
}

std::string ResponsesAnswer::Body(bool is_first) const {
  return JsonObject([&](JsonWriter& json) {
    json.Field("id", id());
    json.Field("object", "response");
    json.Field("created_at", about_.created);
    json.Field("status", is_first ? "in_progress" : status_);
    json.Field("background", false);
    if (!is_first && error_) {
      json.Object("error", [&] {
        json.Field("code", error_->status == 429 ? "rate_limit_exceeded" : "server_error");
        json.Field("message", error_->message);
      });
    } else {
      json.Field("error", nullptr);
    }
    if (!is_first && status_ == "incomplete") {
      json.Object("incomplete_details", [&] { json.Field("reason", "max_output_tokens"); });
    } else {
      json.Field("incomplete_details", nullptr);
    }
    WriteRequest(json);
    if (is_first) {
      json.Array("output", [] {});
      json.Field("usage", nullptr);
    } else {
      WriteOutput(json);
    }
  });
}

void ResponsesAnswer::WriteRequest(JsonWriter& json) const {
  const ResponseRequest& fields = request_.response;
  const auto json_or = [&](std::string_view key, const std::string& text, std::string_view preset) {
    json.JsonField(key, text.empty() ? preset : text);
  };
  if (fields.has_instructions) {
    json.Field("instructions", fields.instructions);
  } else {
    json.Field("instructions", nullptr);
  }
  json_or("max_output_tokens", request_.max_tokens ? absl::StrCat(*request_.max_tokens) : "",
          "null");
  json.Field("max_tool_calls", nullptr);
  json_or("metadata", request_.metadata, "{}");
  json.Field("model", model_.name);
  json.Field("parallel_tool_calls", request_.parallel_tool_calls);
  json.FieldOrNull("previous_response_id", fields.previous_id);
  WriteTextOrNull(json, "prompt_cache_key", fields.prompt_cache_key);
  json.Object("reasoning", [&] {
    WriteTextOrNull(json, "effort", fields.effort);
    json.Field("summary", nullptr);
  });
  WriteTextOrNull(json, "safety_identifier", fields.safety_identifier);
  json.Field("service_tier", "default");
  json.Field("store", request_.store);
  json.Field("temperature", temperature_);
  json.Object("text", [&] {
    json_or("format", fields.text_format, R"({"type":"text"})");
    if (!fields.verbosity.empty()) json.JsonField("verbosity", fields.verbosity);
  });
  json_or("tool_choice", fields.tool_choice, R"("auto")");
  json_or("tools", fields.tools, "[]");
  json.Field("top_logprobs", request_.top_logprobs.value_or(0));
  json.Field("top_p", top_p_);
  json.Field("truncation", fields.truncates ? "auto" : "disabled");
  WriteTextOrNull(json, "user", fields.user);
}

void ResponsesAnswer::WriteOutput(JsonWriter& json) const {
  json.Array("output", [&] {
    if (!is_over()) return;
    for (size_t i = 0; i < items_.size(); ++i) {
      const bool is_cut = i + 1 == items_.size() && status_ != "completed";
      json.Object(
          [&] { WriteItem(json, items_[i], is_cut ? "incomplete" : "completed", logprob_form_); });
    }
  });
  if (!is_over() || error_) {
    json.Field("usage", nullptr);
    return;
  }
  json.Object("usage", [&] {
    json.Field("input_tokens", n_prompt());
    json.Object("input_tokens_details", [&] {
      json.Field("cached_tokens", reused_tokens_);
      json.Field("cache_write_tokens", 0);
    });
    json.Field("output_tokens", n_tokens());
    json.Object("output_tokens_details", [&] { json.Field("reasoning_tokens", n_reasoning()); });
    json.Field("total_tokens", n_prompt() + n_tokens());
  });
}

size_t ResponsesAnswer::PromptBytes(size_t, const EmitToken&) const {
  if (has_begun_ || !first_.empty()) return 0;
  const size_t n_bodies = request_.stream ? 2 : 1;
  return n_bodies * ToldBytes(request_) + (request_.store ? request_.response.input.size() : 0);
}

// Reads only what stays as it was made: a cancelled answer changes on the front thread meanwhile.
std::vector<std::string> ResponsesAnswer::WritePrompt(size_t, const EmitToken&) const {
  std::vector<std::string> written(kNFirst);
  written[kFirstBody] = Body(/*is_first=*/true);
  written[kFirstBody].shrink_to_fit();  // as the store keeps it
  if (request_.store) written[kStoredInput] = request_.response.input;
  if (!request_.stream) return written;
  const auto add = [&](std::string_view type, int64_t number) {
    written[kFirstEvents] += NumberedEvent(
        type, number, [&](JsonWriter& json) { json.JsonField("response", written[kFirstBody]); });
  };
  add("response.created", 0);
  add("response.in_progress", 1);
  return written;
}

void ResponsesAnswer::TakePrompt(size_t, std::vector<std::string> written) {
  first_ = std::move(written);
}

size_t ResponsesAnswer::EndBytes() const {
  // The end of a stream writes the text four times, and log-probabilities with it.
  const size_t n_texts = request_.stream ? 4 : 1, n_stored = request_.store ? 2 : 0;
  size_t n = 0;
  for (const ResponseItem& item : items_)
    n += item.text.size() + item.logprobs.size() *
                                static_cast<size_t>(1 + request_.top_logprobs.value_or(0)) *
                                kLogprobBytes;
  n *= n_texts + n_stored;
  n += ToldBytes(request_) * (1 + n_stored / 2) + PromptBytes(0, {});
  return n + (request_.response.conversation.size() + request_.response.input.size()) * n_stored;
}

void ResponsesAnswer::Store() {
  if (stores() && to_store_) about_.store->Put(*std::exchange(to_store_, std::nullopt));
}

StoredAnswer ResponsesAnswer::ToStore() const {
  StoredAnswer stored{.kind = StoredKind::kResponse,
                      .id = id(),
                      .tenant = about_.tenant,
                      .body = Body(),
                      .input = request_.response.input,
                      .is_cancelled = cancelled(),
                      .created = about_.created};
  if (is_over()) {
    Conversation answer;
    for (const ResponseItem& item : items_) AddItem(item, &answer);
    stored.conversation =
        JoinedMessages(request_.response.conversation, boost::json::serialize(answer.Take()));
  }
  return stored;
}

}  // namespace baton
