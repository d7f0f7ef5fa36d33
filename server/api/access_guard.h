// The one door of the HTTP API: whether a request may be asked, decided from its header before its
// body is read. The route table says which routes need no key; there is no other exception.
// Front thread.
#pragma once

#include <cstdint>
#include <optional>

#include "server/access/api_keys.h"
#include "server/access/host_names.h"
#include "server/api/api_error.h"
#include "server/api/front_metrics.h"
#include "server/api/routes.h"
#include "server/http/http_message.h"

namespace baton {

// The error for a client whose key is refused: 401, or 403. wanted: the scope that its key lacks.
ApiError KeyError(AccessRefusal why, std::optional<Scope> wanted);

class AccessGuard {
 public:
  // keys: null: nobody needs one. hosts: null: any name will do. All must outlive the guard.
  AccessGuard(const ApiKeys* keys, const HostNames* hosts, FrontMetrics* metrics)
      : keys_(keys), hosts_(hosts), metrics_(metrics) {}

  // found: where the request goes. Sets its holder, and takes its secrets away. Nothing: it may go
  // on, and is counted against its key's limit of requests.
  std::optional<ApiError> Admit(const FoundRoute& found, HttpRequest* request) const;
  // Nothing: the key's limit leaves room for a prompt of so many tokens.
  std::optional<ApiError> AdmitTokens(const HttpRequest& request, int64_t n_prompt) const;
  // Counts tokens of the prompt, or generated, against the key's limit.
  static void TakeTokens(const HttpRequest& request, int64_t n);

 private:
  ApiError Refused(AccessRefusal why, ApiError error) const;
  ApiError OverLimit(AccessRefusal why, const char* what, absl::Duration wait) const;
  std::optional<ApiError> CheckKey(const FoundRoute& found, HttpRequest* request) const;

  const ApiKeys* keys_;
  const HostNames* hosts_;
  FrontMetrics* metrics_;
};

}  // namespace baton
