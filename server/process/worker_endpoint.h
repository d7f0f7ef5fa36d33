// A worker's small HTTP side: /metrics, /livez, /readyz. On the loop of the worker's main thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/metrics.h"
#include "server/http/http_server.h"
#include "server/http/paced_page.h"
#include "worker/worker_metrics.h"

namespace baton {

class WorkerEndpoint : public HttpHandler {
 public:
  // `read` gives the worker's figures of now.
  WorkerEndpoint(const std::string& worker_name, const std::string& model,
                 std::function<WorkerMetrics()> read);

  std::string Text();  // of /metrics, as of now
  void Attach(EventLoop* loop, HttpServer* server);
  std::optional<HttpReply> OnHead(const HttpRequest& request) override;
  void OnRequest(ExchangeId id, HttpRequest request) override;
  void OnGone(ExchangeId) override {}
  HttpReply OnBadRequest(int status, const std::string& message) override;

 private:
  struct Series {
    const char* name;
    const char* help;
    double (*value)(const WorkerMetrics&);
    bool is_counter;
  };
  static const Series kSeries[];
  using ReportedCounter = std::pair<CounterMetric, double>;  // and the value told before
  struct LinkSeries {
    std::vector<ReportedCounter> bytes;  // by Traffic
    GaugeMetric rate, round_trip;
  };
  static void Report(ReportedCounter& counter, double value);
  void ReportLink(const LinkReport& link);

  std::function<WorkerMetrics()> read_;
  const MetricLabels labels_;
  MetricsRegistry registry_;
  std::vector<GaugeMetric> gauges_;
  std::vector<ReportedCounter> counters_;
  std::vector<ReportedCounter> refused_;     // by ChunkRefusal
  std::map<Incarnation, LinkSeries> links_;  // since a handoff was first sent there
  HttpServer* server_ = nullptr;
  std::optional<PacedPage> page_;  // since Attach
};

}  // namespace baton
