// A worker's small HTTP side: /metrics, /livez, /readyz. On the loop of the worker's main thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/metric_table.h"
#include "server/access/api_keys.h"
#include "server/http/http_server.h"
#include "server/http/paced_page.h"
#include "worker/worker_metrics.h"

namespace baton {

class WorkerEndpoint : public HttpHandler {
 public:
  // `read` returns the worker's metrics as of now; called on the loop's thread. keys: of whoever
  // may read them; null: anybody.
  WorkerEndpoint(const std::string& worker_name, const std::string& model,
                 std::function<WorkerMetrics()> read, const ApiKeys* keys = nullptr);

  std::string Text();  // of /metrics, as of now
  // Called before the loop runs. Loop and server are used until the server's end.
  void Attach(EventLoop* loop, HttpServer* server);
  std::optional<HttpReply> OnHead(HttpRequest* request) override;
  void OnRequest(ExchangeId id, HttpRequest request) override;
  void OnGone(ExchangeId) override {}
  HttpReply OnBadRequest(const HttpRequest& request, int status,
                         const std::string& message) override;

 private:
  std::function<WorkerMetrics()> read_;
  const ApiKeys* keys_;
  const MetricLabels labels_;
  MetricsRegistry registry_;
  MetricTable<WorkerMetrics> series_;
  std::map<Incarnation, MetricTable<LinkReport>> links_;  // by peer
  HttpServer* server_ = nullptr;
  std::optional<PacedPage> page_;  // since Attach
};

}  // namespace baton
