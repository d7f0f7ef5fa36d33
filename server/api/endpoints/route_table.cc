// The endpoints of the API. A new endpoint: a file with its function here, declared in endpoints.h,
// and a row.
#include "server/api/endpoints/endpoints.h"

namespace baton {

std::span<const Route> RouteTable() {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/completions", AnswerCompletions},
      {"POST", "/v1/chat/completions", AnswerChatCompletions},
      {"GET", "/v1/models", AnswerModels},
      {"GET", "/v1/models/*", AnswerModel},
      {"GET", "/health", AnswerHealth},
      {"GET", "/v1/health", AnswerHealth},
      {"GET", "/ping", AnswerHealth},
      {"GET", "/readyz", AnswerHealth},
      {"GET", "/livez", AnswerLive},
      {"GET", "/metrics", AnswerMetrics},
      {"GET", "/version", AnswerVersion},
  };
  return kRoutes;
}

}  // namespace baton
