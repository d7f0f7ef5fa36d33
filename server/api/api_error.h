// Errors of the HTTP API in OpenAI's shape: {"error":{"message","type","param","code"}}, all four
// keys always there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"
#include "server/http/http_message.h"

namespace baton {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // field path such as messages[0].content; empty = null
  std::string code;   // empty = null
  // Set for a context overflow, for clients that read numbers.
  std::optional<int64_t> n_prompt_tokens, n_ctx;
  std::optional<absl::Duration> retry_after;  // 429
  // Set by ApiFront, for APIs that name the request in the error's body too.
  std::string request_id;
};

ApiError HttpError(int status, std::string message, std::string code = "");
ApiError UnknownModel(const std::string& name);  // 404; names no field
ApiError InvalidField(std::string param, std::string message, std::string code = "invalid_value");
inline constexpr char kPromptTooSlow[] = "prompt_too_slow";  // a code
// A prompt that its template or the tokenizer refuses, or for which they take too long.
ApiError InvalidText(const std::string& param, const absl::Status& status);
ApiError Unsupported(std::string param, std::string message);
// "PATH may have at most MAX WHAT; got N."
ApiError TooMany(const std::string& path, int64_t max, const std::string& what, size_t n);
// A refusal or failure of the cluster as an answer. Internal details stay in the log.
ApiError FromClusterStatus(const absl::Status& status);

// Whether the same request would be refused again: the SDKs of OpenAI and Anthropic are told so.
bool RetryCannotHelp(int http_status);

std::string ErrorBody(const ApiError& error);
HttpReply ErrorReply(const ApiError& error);

}  // namespace baton
