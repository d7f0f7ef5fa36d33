// /metrics and /load on a port of their own, where the API is public: the port that strangers reach
// does not have them. /livez and /readyz are here too, so that probes need none of the API's
// connections. The same front answers, and keys need the same scope. Front thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/access_guard.h"
#include "server/api/api_front.h"
#include "server/http/http_server.h"

namespace baton {

// The rows of `routes` that the edge has, and those with another scope than `scope`.
std::vector<Route> RoutesOfEdge(std::span<const Route> routes);
std::vector<Route> RoutesWithout(std::span<const Route> routes, Scope scope);

class MetricsEdge : public HttpHandler {
 public:
  // Takes its rows of `routes`. All must outlive the edge. keys: null: nobody needs one.
  MetricsEdge(ApiFront* front, std::span<const Route> routes, const ApiKeys* keys,
              MetricsRegistry* registry)
      : front_(front),
        routes_(RoutesOfEdge(routes)),
        guard_(keys, nullptr, registry, front->model().name) {}

  void Attach(HttpServer* server) { server_ = server; }  // before the loop runs
  std::optional<HttpReply> OnHead(HttpRequest* request) override;
  void OnRequest(ExchangeId id, HttpRequest request) override;
  void OnGone(ExchangeId) override {}  // an answer that waits finds nobody
  HttpReply OnBadRequest(const HttpRequest& request, int status,
                         const std::string& message) override {
    return front_->OnBadRequest(request, status, message);
  }

 private:
  ApiFront* front_;
  const std::vector<Route> routes_;
  const AccessGuard guard_;
  HttpServer* server_ = nullptr;
};

}  // namespace baton
