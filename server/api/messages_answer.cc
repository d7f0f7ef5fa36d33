#include "server/api/messages_answer.h"

#include <boost/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/api/json_document.h"
#include "server/api/json_writer.h"
#include "server/api/sse_event.h"

namespace baton {
namespace {

std::string_view ErrorType(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status >= 500 && error.status != 505 ? "api_error" : "invalid_request_error";
  }
}

// This shape has no member for the field, so the message names it.
std::string Message(const ApiError& error) {
  if (error.param.empty() || absl::StrContains(error.message, error.param)) return error.message;
  return absl::StrCat(error.param, ": ", error.message);
}

std::string AnthropicErrorBody(const ApiError& error) {
  return JsonObject([&](JsonWriter& json) {
    json.Field("type", "error");
    json.Object("error", [&] {
      json.Field("type", ErrorType(error));
      json.Field("message", Message(error));
    });
    json.FieldOrNull("request_id", error.request_id);
  });
}

// The arguments as an object. A cut call's are none: they are told as Anthropic advises clients to
// send them back.
void WriteInput(JsonWriter& json, const std::string& arguments) {
  const auto parsed = ParseJson(arguments);
  if (parsed.ok() && parsed->is_object()) {
    json.JsonField("input", arguments);
  } else {
    json.Object("input", [&] { json.Field("INVALID_JSON", arguments); });
  }
}

void WriteCall(JsonWriter& json, const CallPiece& call) {
  json.Field("type", "tool_use");
  json.Field("id", ToolUseId(call.id));
  json.Field("name", call.name);
}

}  // namespace

MessagesAnswer::MessagesAnswer(const ServedModel& model, const ApiRequest& request,
                               const std::vector<PreparedPrompt>& prompts, const AnswerAbout& about)
    : Answer(model, request, prompts), model_(model), about_(about), stream_(request.stream) {}

std::string MessagesAnswer::OnToken(size_t choice, const EmitToken& token) {
  if (texts_[choice].ended()) return "";
  return Tell(texts_[choice].Push(token.token));
}

std::string MessagesAnswer::OnChoiceEnd(size_t choice, const EmitEnd& end) {
  std::string events = Tell(texts_[choice].Finish());
  end_reason_ = end.reason;
  reused_tokens_ = end.timeline.reused_tokens;
  if (!stream_) return "";
  events += CloseBlock();
  events += SseEvent("message_delta", JsonObject([&](JsonWriter& json) {
                       json.Field("type", "message_delta");
                       json.Object("delta", [&] { WriteStop(json); });
                       WriteUsage(json);
                     }));
  return events + SseEvent("message_stop", R"({"type":"message_stop"})");
}

std::string MessagesAnswer::OnEnd() {
  if (stream_) return "";
  return JsonObject([&](JsonWriter& json) {
    json.Field("id", "msg_" + about_.id);
    json.Field("type", "message");
    json.Field("role", "assistant");
    json.Field("model", model_.name);
    json.Array("content", [&] {
      if (!told_.reasoning.empty()) {
        json.Object([&] {
          json.Field("type", "thinking");
          json.Field("thinking", told_.reasoning);
          json.Field("signature", "");
        });
      }
      if (!told_.content.empty()) {
        json.Object([&] {
          json.Field("type", "text");
          json.Field("text", told_.content);
        });
      }
      for (const CallPiece& call : told_.calls) {
        json.Object([&] {
          WriteCall(json, call);
          WriteInput(json, call.arguments);
        });
      }
    });
    WriteStop(json);
    WriteUsage(json);
  });
}

std::string MessagesAnswer::OnError(const ApiError& error) {
  ApiError named = error;
  named.request_id = about_.id;
  return SseEvent("error", AnthropicErrorBody(named));
}

std::string MessagesAnswer::Tell(const AnswerPiece& given) {
  AnswerPiece piece = given;
  for (CallPiece& call : piece.calls)
    if (!call.name.empty()) call.id = CallId(about_.id, call.index);
  has_calls_ = has_calls_ || !piece.calls.empty();
  if (!stream_) {
    told_.Add(std::move(piece));
    return "";
  }
  std::string events = Begin();
  if (!piece.reasoning.empty()) {
    events += OpenBlock(Block::kThinking);
    events += Delta("thinking_delta", "thinking", piece.reasoning);
  }
  if (!piece.content.empty()) {
    events += OpenBlock(Block::kText);
    events += Delta("text_delta", "text", piece.content);
  }
  for (const CallPiece& call : piece.calls) {
    events += OpenBlock(Block::kCall, &call);
    if (!call.arguments.empty())
      events += Delta("input_json_delta", "partial_json", call.arguments);
  }
  return events;
}

std::string MessagesAnswer::Begin() {
  if (std::exchange(has_begun_, true)) return "";
  return SseEvent("message_start", JsonObject([&](JsonWriter& json) {
                    json.Field("type", "message_start");
                    json.Object("message", [&] {
                      json.Field("id", "msg_" + about_.id);
                      json.Field("type", "message");
                      json.Field("role", "assistant");
                      json.Field("model", model_.name);
                      json.Array("content", [] {});
                      json.Field("stop_reason", nullptr);
                      json.Field("stop_sequence", nullptr);
                      WriteUsage(json);
                    });
                  }));
}

// Goes on with the open block if it is of that kind, and the same call.
std::string MessagesAnswer::OpenBlock(Block block, const CallPiece* call) {
  if (block_ == block && (call == nullptr || call_ == call->index)) return "";
  std::string events = CloseBlock();
  block_ = block;
  ++block_index_;
  if (call != nullptr) call_ = call->index;
  return events + SseEvent("content_block_start", JsonObject([&](JsonWriter& json) {
                             json.Field("type", "content_block_start");
                             json.Field("index", block_index_);
                             json.Object("content_block", [&] {
                               if (call != nullptr) {
                                 WriteCall(json, *call);
                                 json.Object("input", [] {});
                               } else if (block == Block::kText) {
                                 json.Field("type", "text");
                                 json.Field("text", "");
                               } else {
                                 json.Field("type", "thinking");
                                 json.Field("thinking", "");
                                 json.Field("signature", "");
                               }
                             });
                           }));
}

std::string MessagesAnswer::CloseBlock() {
  if (std::exchange(block_, Block::kNone) == Block::kNone) return "";
  return SseEvent("content_block_stop", JsonObject([&](JsonWriter& json) {
                    json.Field("type", "content_block_stop");
                    json.Field("index", block_index_);
                  }));
}

std::string MessagesAnswer::Delta(const char* type, const char* member,
                                  const std::string& text) const {
  return SseEvent("content_block_delta", JsonObject([&](JsonWriter& json) {
                    json.Field("type", "content_block_delta");
                    json.Field("index", block_index_);
                    json.Object("delta", [&] {
                      json.Field("type", type);
                      json.Field(member, text);
                    });
                  }));
}

std::string_view MessagesAnswer::StopReason() const {
  if (texts_.front().stopped()) return "stop_sequence";
  if (end_reason_ == EndReason::kLength) return "max_tokens";
  return has_calls_ ? "tool_use" : "end_turn";
}

void MessagesAnswer::WriteStop(JsonWriter& json) const {
  json.Field("stop_reason", StopReason());
  const std::string* stop = texts_.front().stop_string();
  json.FieldOrNull("stop_sequence", stop == nullptr ? std::string_view() : *stop);
}

// Tokens whose KV was cached are counted apart; how many these are is known at the end.
void MessagesAnswer::WriteUsage(JsonWriter& json) const {
  json.Object("usage", [&] {
    json.Field("input_tokens", n_prompt() - reused_tokens_);
    json.Field("cache_creation_input_tokens", 0);
    json.Field("cache_read_input_tokens", reused_tokens_);
    json.Field("output_tokens", n_tokens());
  });
}

HttpReply AnthropicErrorReply(const ApiError& error) {
  HttpReply reply = ErrorReply(error);
  reply.body = AnthropicErrorBody(error);
  return reply;
}

}  // namespace baton
