// A worker's small HTTP side: /metrics, /livez, /readyz. On the loop of the worker's main thread,
// so it answers while the engine computes. An engine that stands still makes /readyz 503 when the
// router gives it nothing new, and /livez when the router gives it up: nothing but a restart helps.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/process_series.h"
#include "server/access/api_keys.h"
#include "server/http/http_server.h"
#include "server/http/paced_page.h"
#include "worker/worker_metrics.h"

namespace baton {

class WorkerEndpoint : public HttpHandler {
 public:
  // `read` returns the worker's metrics as of now; called on the loop's thread. engine_patience:
  // the router's (RouterOptions). keys: of whoever may read metrics; null: anybody.
  WorkerEndpoint(const std::string& worker_name, const std::string& model,
                 std::function<WorkerMetrics()> read, absl::Duration engine_patience,
                 const ApiKeys* keys = nullptr, const std::string& version = "");

  std::string Text();                             // of /metrics, as of now
  void TellCertificateExpiry(absl::Time expiry);  // of the cluster's certificate; a metric
  // Returns what /livez says is wrong, or /readyz if the worker must be ready. Empty: nothing.
  std::string ProblemOf(const WorkerMetrics& metrics, bool must_be_ready) const;
  // Called before the loop runs. Loop and server are used until the server's end.
  void Attach(EventLoop* loop, HttpServer* server);
  std::optional<HttpReply> OnHead(HttpRequest* request) override;
  void OnRequest(ExchangeId id, HttpRequest request) override;
  void OnGone(ExchangeId) override {}
  HttpReply OnBadRequest(const HttpRequest& request, int status,
                         const std::string& message) override;

 private:
  std::function<WorkerMetrics()> read_;
  const int64_t engine_patience_us_;
  const ApiKeys* keys_;
  const MetricLabels labels_;
  MetricsRegistry registry_;
  ProcessSeries process_;
  MetricTable<WorkerMetrics> series_;
  std::map<Incarnation, MetricTable<LinkReport>> links_;  // by peer
  HttpServer* server_ = nullptr;
  std::optional<PacedPage> page_;  // since Attach
};

}  // namespace baton
