// GET /metrics: the registry of the router process as Prometheus reads it.
#include "server/api/endpoints/endpoints.h"

namespace baton {

void AnswerMetrics(ApiFront& front, ApiCall call) {
  front.metrics_page().Get([&front, call = std::move(call)](const std::string& page) {
    front.Reply(call, MetricsReply(page));
  });
}

}  // namespace baton
