#include "server/api/access_guard.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/api/json_document.h"

namespace baton {

ApiError KeyError(AccessRefusal why, std::optional<Scope> wanted) {
  if (why == AccessRefusal::kNoKey) {
    return HttpError(401,
                     "You didn't provide an API key. Send it as Authorization: Bearer KEY, or as "
                     "x-api-key: KEY.",
                     "invalid_api_key");
  }
  if (why == AccessRefusal::kUnknownKey)
    return HttpError(401, "Incorrect API key provided.", "invalid_api_key");
  return HttpError(
      403,
      absl::StrCat("This API key does not have the scope ",
                   std::string(NameOf(wanted.value_or(Scope::kOpen))), ", which this path needs."),
      "insufficient_scope");
}

std::optional<ApiError> AccessGuard::Admit(const FoundRoute& found, HttpRequest* request) const {
  if (hosts_ != nullptr && !hosts_->Allows(request->host)) {
    return Refused(
        AccessRefusal::kHost,
        HttpError(403,
                  absl::StrCat("This server is on the loopback address and is not called ",
                               ShortenedName(request->host),
                               "; if it is, its operator may set --server.allowed_hosts."),
                  "host_not_allowed"));
  }
  auto error = CheckKey(found, request);
  request->authorization.clear();
  request->api_key.clear();
  return error;
}

std::optional<ApiError> AccessGuard::CheckKey(const FoundRoute& found, HttpRequest* request) const {
  const bool is_open = found.route != nullptr && found.route->scope == Scope::kOpen;
  if (keys_ == nullptr || is_open || request->method == "OPTIONS") return std::nullopt;
  // Paths that are not there need a key, of any scope: strangers learn nothing of them.
  std::optional<Scope> wanted;
  if (found.route != nullptr) wanted = found.route->scope;
  KeyCheck check = keys_->Check({request->authorization, request->api_key}, wanted);
  if (check.holder == nullptr) return Refused(check.refusal, KeyError(check.refusal, wanted));
  const absl::Duration wait = check.holder->TakeRequest(MonotonicNow());
  if (wait > absl::ZeroDuration())
    return OverLimit(AccessRefusal::kRequestRate, "requests per second", wait);
  request->holder = std::move(check.holder);
  return std::nullopt;
}

std::optional<ApiError> AccessGuard::AdmitTokens(const HttpRequest& request,
                                                 int64_t n_prompt) const {
  if (request.holder == nullptr) return std::nullopt;
  const absl::Duration wait = request.holder->WaitForTokens(n_prompt, MonotonicNow());
  if (wait <= absl::ZeroDuration()) return std::nullopt;
  return OverLimit(AccessRefusal::kTokenRate, "tokens per minute", wait);
}

void AccessGuard::TakeTokens(const HttpRequest& request, int64_t n) {
  if (request.holder != nullptr) request.holder->TakeTokens(n, MonotonicNow());
}

ApiError AccessGuard::OverLimit(AccessRefusal why, const char* what, absl::Duration wait) const {
  ApiError error =
      HttpError(429,
                absl::StrCat("The limit of ", what, " of this API key is reached; try again in ",
                             absl::FormatDuration(absl::Ceil(wait, absl::Milliseconds(1))), "."),
                "rate_limit_exceeded");
  error.type = "rate_limit_error";
  error.retry_after = absl::Ceil(wait, absl::Milliseconds(1));
  return Refused(why, std::move(error));
}

ApiError AccessGuard::Refused(AccessRefusal why, ApiError error) const {
  metrics_->OnAccessRefused(why);
  return error;
}

}  // namespace baton
