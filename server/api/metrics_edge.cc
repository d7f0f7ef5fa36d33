#include "server/api/metrics_edge.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/api/reply_headers.h"

namespace baton {

std::vector<Route> RoutesOfEdge(std::span<const Route> routes) {
  std::vector<Route> found;
  std::copy_if(routes.begin(), routes.end(), std::back_inserter(found), [](const Route& route) {
    return route.scope == Scope::kMetrics || route.path == "/livez" || route.path == "/readyz";
  });
  return found;
}

std::vector<Route> RoutesWithout(std::span<const Route> routes, Scope scope) {
  std::vector<Route> found;
  std::copy_if(routes.begin(), routes.end(), std::back_inserter(found),
               [scope](const Route& route) { return route.scope != scope; });
  return found;
}

std::optional<HttpReply> MetricsEdge::OnHead(HttpRequest* request) {
  const FoundRoute found = FindRoute(routes_, request->method, request->path);
  auto error = guard_.Admit(found, request);
  if (!error && found.route == nullptr)
    error = HttpError(404, "Here are GET /metrics, /load, /livez and /readyz.", "not_found");
  if (!error) return std::nullopt;
  return EarlyRefusal(*request, *std::move(error), "");
}

void MetricsEdge::OnRequest(ExchangeId id, HttpRequest request) {
  ApiCall call{.exchange = id, .writer = server_, .label = RouteLabel(routes_, request.path)};
  call.request = std::move(request);
  call.admitted = true;
  front_->OnCall(routes_, std::move(call));
}

}  // namespace baton
