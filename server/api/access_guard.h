// The one door of the HTTP API: whether a request may be asked, decided from its header before its
// body is read. The route table says which routes need no key; there is no other exception.
// Front thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/metrics.h"
#include "server/access/api_keys.h"
#include "server/access/host_names.h"
#include "server/api/api_error.h"
#include "server/api/routes.h"
#include "server/http/http_message.h"

namespace baton {

// The error for a client whose key is refused: 401, or 403. wanted: the scope that its key lacks.
ApiError KeyError(AccessRefusal why, std::optional<Scope> wanted);

class AccessGuard {
 public:
  // keys: null: nobody needs one. hosts: null: any name will do. model: a label. All must outlive
  // the guard; those of several edges share keys and counters.
  AccessGuard(const ApiKeys* keys, const HostNames* hosts, MetricsRegistry* registry,
              const std::string& model);

  // found: where the request goes. Sets its holder and owner, and takes its secrets away. Nothing:
  // it may go on, and is counted against its key's limit of requests.
  std::optional<ApiError> Admit(const FoundRoute& found, HttpRequest* request) const;
  // The part of it that knows no HTTP, for edges of other protocols too. wanted: nothing: any scope
  // will do. *holder is set unless there are no keys, and goes into the request.
  std::optional<ApiError> AdmitKey(const Credentials& credentials, std::optional<Scope> wanted,
                                   std::shared_ptr<const KeyHolder>* holder) const;
  // Nothing: the key's limit leaves room for a prompt of so many tokens.
  std::optional<ApiError> AdmitTokens(const HttpRequest& request, int64_t n_prompt) const;
  // Counts tokens of the prompt, or generated, against the key's limit.
  static void TakeTokens(const HttpRequest& request, int64_t n);

 private:
  CounterMetric Refusals(AccessRefusal why) const;
  ApiError Refused(AccessRefusal why, ApiError error) const;  // counted
  ApiError OverLimit(AccessRefusal why, const char* what, absl::Duration wait) const;

  const ApiKeys* keys_;
  const HostNames* hosts_;
  MetricsRegistry* registry_;
  const std::string model_;
};

}  // namespace baton
