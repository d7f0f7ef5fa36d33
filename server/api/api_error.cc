#include "server/api/api_error.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "text/detokenizer.h"

namespace baton {

std::string_view BeginningOf(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes);
}

std::string JsonString(std::string_view given) {
  const std::string text = ValidUtf8(given);
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
  return out;
}

ApiError InvalidField(std::string param, std::string message, std::string code) {
  ApiError error;
  error.param = std::move(param);
  error.message = std::move(message);
  error.code = std::move(code);
  return error;
}

ApiError Unsupported(std::string param, std::string message) {
  return InvalidField(std::move(param), std::move(message), "unsupported_parameter");
}

ApiError FromClusterStatus(const absl::Status& status) {
  ApiError error;
  error.message = std::string(status.message());
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      error.status = 429;
      error.type = "rate_limit_error";
      error.code = "server_overloaded";
      error.retry_after = absl::Seconds(1);
      break;
    case absl::StatusCode::kUnavailable:
      error.status = 503;
      error.type = "server_error";
      error.code = "no_workers";
      break;
    case absl::StatusCode::kAborted:
      error.status = 500;
      error.type = "server_error";
      error.code = "workers_lost";
      break;
    case absl::StatusCode::kInvalidArgument:
      error.code = "invalid_value";
      break;
    case absl::StatusCode::kDeadlineExceeded:
      error.status = 503;
      error.type = "server_error";
      error.code = "timeout";
      break;
    default:
      error.status = 500;
      error.type = "server_error";
      error.message = "internal error; the server's log has the details";
  }
  return error;
}

std::string ErrorBody(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : JsonString(text);
  };
  std::string body = absl::StrCat(
      "{\"error\":{\"message\":", JsonString(error.message), ",\"type\":", JsonString(error.type),
      ",\"param\":", text_or_null(error.param), ",\"code\":", text_or_null(error.code));
  if (error.n_prompt_tokens)
    absl::StrAppend(&body, ",\"n_prompt_tokens\":", *error.n_prompt_tokens);
  if (error.n_ctx) absl::StrAppend(&body, ",\"n_ctx\":", *error.n_ctx);
  return body + "}}";
}

HttpReply ErrorReply(const ApiError& error) {
  HttpReply reply;
  reply.status = error.status;
  reply.body = ErrorBody(error);
  if (error.retry_after) {
    const int64_t ms = absl::ToInt64Milliseconds(*error.retry_after);
    reply.headers.emplace_back("Retry-After", absl::StrCat((ms + 999) / 1000));
    reply.headers.emplace_back("Retry-After-Ms", absl::StrCat(ms));
  }
  return reply;
}

}  // namespace baton
