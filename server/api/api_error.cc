#include "server/api/api_error.h"

#include "absl/strings/str_cat.h"
#include "server/api/json_document.h"
#include "server/api/json_writer.h"

namespace baton {

ApiError HttpError(int status, std::string message, std::string code) {
  ApiError error;
  error.status = status;
  error.message = std::move(message);
  error.code = std::move(code);
  if (status >= 500 && status != 505) error.type = "server_error";  // 505: the client's version
  return error;
}

ApiError UnknownModel(const std::string& name) {
  return HttpError(404, absl::StrCat("The model `", ShortenedName(name), "` does not exist."),
                   "model_not_found");
}

ApiError InvalidField(std::string param, std::string message, std::string code) {
  ApiError error;
  error.param = std::move(param);
  error.message = std::move(message);
  error.code = std::move(code);
  return error;
}

// No 503 when it takes too long: clients would send the request again, which takes as long.
ApiError InvalidText(const std::string& param, const absl::Status& status) {
  const std::string message(status.message());
  if (!absl::IsDeadlineExceeded(status)) return InvalidField(param, message);
  return InvalidField(
      param,
      absl::StrCat(message, " (server.text_deadline); send a shorter prompt, or its token ids."),
      kPromptTooSlow);
}

ApiError Unsupported(std::string param, std::string message) {
  return InvalidField(std::move(param), std::move(message), "unsupported_parameter");
}

ApiError TooMany(const std::string& path, int64_t max, const std::string& what, size_t n) {
  return InvalidField(path,
                      absl::StrCat(path, " may have at most ", max, " ", what, "; got ", n, "."));
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

bool RetryCannotHelp(int http_status) {
  if (http_status == 408 || http_status == 409 || http_status == 429) return false;
  return (http_status >= 400 && http_status < 500) || http_status == 501 || http_status == 504 ||
         http_status == 505;
}

std::string ErrorBody(const ApiError& error) {
  return JsonObject([&](JsonWriter& json) {
    json.Object("error", [&] {
      json.Field("message", error.message);
      json.Field("type", error.type);
      json.FieldOrNull("param", error.param);
      json.FieldOrNull("code", error.code);
      if (error.n_prompt_tokens) json.Field("n_prompt_tokens", *error.n_prompt_tokens);
      if (error.n_ctx) json.Field("n_ctx", *error.n_ctx);
    });
  });
}

HttpReply ErrorReply(const ApiError& error) {
  HttpReply reply;
  reply.status = error.status;
  reply.body = ErrorBody(error);
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.retry_after) {
    const int64_t ms = absl::ToInt64Milliseconds(*error.retry_after);
    reply.headers.emplace_back("Retry-After", absl::StrCat((ms + 999) / 1000));
    reply.headers.emplace_back("Retry-After-Ms", absl::StrCat(ms));
  }
  return reply;
}

}  // namespace baton
