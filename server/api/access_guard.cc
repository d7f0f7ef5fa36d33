#include "server/api/access_guard.h"

#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "server/api/api_series.h"
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

AccessGuard::AccessGuard(const ApiKeys* keys, const HostNames* hosts, MetricsRegistry* registry,
                         const std::string& model)
    : keys_(keys), hosts_(hosts), registry_(registry), model_(model) {
  for (size_t why = 1; why < kAccessRefusalNames.size(); ++why)
    Refusals(static_cast<AccessRefusal>(why));
}

CounterMetric AccessGuard::Refusals(AccessRefusal why) const {
  return registry_->Counter(
      ApiMetric("baton_access_refused_total"),
      {{"model", model_},
       {"role", "router"},
       {"reason", std::string(kAccessRefusalNames[static_cast<size_t>(why)])}});
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
  const std::string authorization = std::exchange(request->authorization, "");
  const std::string api_key = std::exchange(request->api_key, "");
  const bool is_open = found.route != nullptr && found.route->scope == Scope::kOpen;
  if (is_open || request->method == "OPTIONS") return std::nullopt;
  // Paths that are not there need a key, of any scope: strangers learn nothing of them.
  std::optional<Scope> wanted;
  if (found.route != nullptr) wanted = found.route->scope;
  auto refusal = AdmitKey({authorization, api_key}, wanted, &request->holder);
  if (request->holder != nullptr) request->owner = absl::HashOf(request->holder->name) | 1;
  return refusal;
}

std::optional<ApiError> AccessGuard::AdmitKey(const Credentials& credentials,
                                              std::optional<Scope> wanted,
                                              std::shared_ptr<const KeyHolder>* holder) const {
  if (keys_ == nullptr) return std::nullopt;
  KeyCheck check = keys_->Check(credentials, wanted);
  if (check.holder == nullptr) return Refused(check.refusal, KeyError(check.refusal, wanted));
  const absl::Duration wait = check.holder->TakeRequest(MonotonicNow());
  if (wait > absl::ZeroDuration())
    return OverLimit(AccessRefusal::kRequestRate, "requests per second", wait);
  *holder = std::move(check.holder);
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
  Refusals(why).Add();
  return error;
}

}  // namespace baton
