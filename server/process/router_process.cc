#include <malloc.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"
#include "lab/relay_lab.h"
#include "server/access/key_file_watch.h"
#include "server/api/api_front.h"
#include "server/api/endpoints/endpoints.h"
#include "server/api/metrics_edge.h"
#include "server/api/request_spans.h"
#include "server/api/router_generator.h"
#include "server/grpc/completion_service.h"
#include "server/http/descriptor_limit.h"
#include "server/http/file_watch.h"
#include "server/process/control_series.h"
#include "server/process/partition_file.h"
#include "server/process/role_process.h"
#include "server/tracing/tracer.h"

namespace baton {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// After the last answer: time for workers to hear of the last ends.
constexpr absl::Duration kFarewell = absl::Milliseconds(50);
constexpr int kMetricsConnections = 64;    // where metrics have a port of their own
constexpr int kReservedDescriptors = 512;  // for those, files, libraries and the streams of workers

HttpServerOptions HttpOptions(const HttpServerOptions& given, int64_t max_context) {
  HttpServerOptions options = given;
  if (options.limits.max_body == 0)
    options.limits.max_body = static_cast<size_t>(std::clamp(32 * max_context, kMiB, 64 * kMiB));
  const int others = kReservedDescriptors + options.max_handshakes;
  const int room = RaiseDescriptorLimit(others);
  if (room < options.max_connections) {
    LogWarn("server.max_connections is %d, not %d: the limit of descriptors (ulimit -n) is low",
            room, options.max_connections);
    options.max_connections = room;
  }
  GrowDescriptorTable(options.max_connections + others);
  return options;
}

// Returns the options of gRPC. The settings of HTTP say what both have in common.
GrpcOptions GrpcOptionsOf(const ServerConfig& server, const HttpServerOptions& http) {
  GrpcOptions options = server.grpc;
  options.host = http.host;
  options.tls = http.tls;
  options.max_body = http.limits.max_body;
  options.max_header = http.limits.max_header;
  options.max_unsent = http.max_unsent;
  options.max_calls = http.max_connections;
  options.max_waiting_bytes = static_cast<size_t>(server.api.text_queue);
  options.write_timeout = http.write_timeout;
  options.idle_timeout = http.idle_timeout;
  return options;
}

// Starts gRPC and attaches both servers to the front. Null: there is no gRPC (server.grpc_port 0).
absl::StatusOr<std::unique_ptr<CompletionService>> ServeGrpc(EventLoop* loop,
                                                             const GrpcOptions& options,
                                                             HttpServer* http, ApiFront* front) {
  front->Attach(http);
  if (options.port == 0) return nullptr;
  ASSIGN_OR_RETURN(auto grpc, CompletionService::Start(loop, options, front));
  front->Attach(http, grpc.get());
  LogInfo("listening for gRPC on %s:%d", options.host, grpc->port());
  return grpc;
}

// Starts the server of metrics where they have a port of their own (api: the API's options). Null:
// they are on the API's port.
absl::StatusOr<std::unique_ptr<HttpServer>> ServeMetrics(EventLoop* loop, int port,
                                                         const HttpServerOptions& api,
                                                         MetricsEdge* edge) {
  if (edge == nullptr) return nullptr;
  HttpServerOptions options = api;
  options.port = port;
  options.uds.clear();
  options.max_connections = std::min(options.max_connections, kMetricsConnections);
  options.max_per_key = options.max_connections;
  options.max_per_address = options.max_connections / 2;  // the others are for probes
  auto server = HttpServer::Start(loop, options, edge);
  if (!server.ok())
    return absl::Status(server.status().code(),
                        absl::StrCat("server.metrics_port: ", server.status().message()));
  edge->Attach(server->get());
  LogInfo("metrics on %s/metrics", PlacesOf(options, (*server)->port()));
  return server;
}

// The lab's table for relays. It fits the setting of ranks; whether it fits the model is checked
// when workers join.
absl::StatusOr<std::shared_ptr<const PartitionTable>> TableOf(const Config& config) {
  const std::string& path = config.lab.partition_table;
  if (path.empty())
    return absl::InvalidArgumentError("lab.partition is table: set lab.partition_table");
  ASSIGN_OR_RETURN(std::shared_ptr<const PartitionTable> table, ReadPartitionFile(path));
  const int max_ranks = config.router.router.relay.max_ranks;
  if (!table->of_ranks.contains(max_ranks))
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has nothing for %d ranks (router.relay_max_ranks): tune it for so many workers "
        "(baton tune), or change router.relay_max_ranks",
        path, max_ranks));
  return table;
}

// Infinite: no gap between tokens is asked for.
absl::Duration SizingGap(const Config& config) {
  const absl::Duration itl = config.server.api.slo.itl;
  return itl > absl::ZeroDuration() ? itl : absl::InfiniteDuration();
}

// The user's options, with relays as section lab says.
absl::StatusOr<RouterOptions> OptionsOf(const Config& config) {
  RouterOptions options = config.router.router;
  options.relay.min_ranks = config.lab.relay_min_ranks;
  options.sizing_gap = SizingGap(config);
  RelayLab relay = config.lab.relay;
  if (relay.partition == PartitionMode::kTable) {
    ASSIGN_OR_RETURN(relay.table, TableOf(config));
  }
  options.relay.sharing = SharingOf(relay);
  return options;
}

std::vector<std::string> PathsOf(const ClusterTlsFiles& files) {
  return {files.cert, files.key, files.ca};
}

// Declares what is counted of peers that may not join, and returns who counts: any thread.
std::function<void(JoinFault)> CountRefusals(MetricsRegistry* registry) {
  std::vector<CounterMetric> counters;
  for (const char* reason : kJoinFaultNames)
    counters.push_back(
        registry->Counter(ControlMetric("baton_workers_refused_total"), {{"reason", reason}}));
  return [counters](JoinFault fault) mutable { counters[static_cast<size_t>(fault)].Add(); };
}

absl::StatusOr<ControlServerOptions> ControlOf(const RoleConfig& process,
                                               MetricsRegistry* registry) {
  ControlServerOptions control;
  control.address = process.config.router.control;
  control.key = process.key;
  control.on_refused = CountRefusals(registry);
  if (const ClusterTlsFiles& files = process.config.cluster.tls; files.any()) {
    ASSIGN_OR_RETURN(control.certificate, ClusterCertificate::Load(files, kRouterRole));
    control.certificate->WarnOfExpiry();
  }
  return control;
}

int ExpectedWorkers(const Config& config) {
  return config.decode.workers + (config.cluster.colocated ? 0 : config.prefill.workers);
}

// Bodies and answers that are freed go back to the system: without this, the C library keeps what
// thousands of connections once held, and lets small things that live on hold large ones between.
void ReturnFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 64 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 4 << 20);
}

int Fail(const absl::Status& status) {
  LogError("%s", std::string(status.message()));
  return 2;
}

// Ends the loop when everything has been answered, when the time is up, or at a second signal (of a
// user; a supervisor asks again with SIGKILL, and its SIGTERM may come with one to the whole unit).
class StopWatcher {
 public:
  // limit: read at the signal; outlives the watcher.
  StopWatcher(EventLoop* loop, ApiFront* front, const absl::Duration* limit, bool has_supervisor)
      : loop_(loop),
        front_(front),
        limit_(limit),
        has_supervisor_(has_supervisor),
        deadline_(loop),
        farewell_(loop) {}

  void OnSignal() {
    if (std::exchange(stopping_, true)) {
      if (has_supervisor_) return;
      LogWarn("stopping at once");
      loop_->Stop();
      return;
    }
    LogInfo("stopping: new requests are refused, running ones have %s",
            absl::FormatDuration(*limit_));
    deadline_.Set(MonotonicNow() + *limit_, [this] {
      LogWarn("the time to stop is up, running requests are cut off");
      loop_->Stop();
    });
    front_->Drain([this] { farewell_.Set(MonotonicNow() + kFarewell, [this] { loop_->Stop(); }); });
  }

 private:
  EventLoop* loop_;
  ApiFront* front_;
  const absl::Duration* const limit_;
  const bool has_supervisor_;
  EventLoop::Timer deadline_, farewell_;
  bool stopping_ = false;
};

}  // namespace

int RunRouter(const RoleConfig& process) {
  Config config = process.config;  // takes live values
  ReturnFreedMemory();
  if (config.server.grpc.port != 0) {
    const auto served = CheckGrpc(GrpcOptionsOf(config.server, config.server.http));
    if (!served.ok()) return Fail(served);
  }
  EventLoop loop;
  std::function<void()> reload_all;
  loop.OnReloadSignal([&] { reload_all(); });  // one that comes while the tokenizer loads is kept
  const AccessOptions& access = config.server.access;
  const auto entries = ReadAccess(access, config.server.http.host);
  if (!entries.ok()) return Fail(entries.status());
  ApiKeys keys(*entries);
  std::optional<KeyFileWatch> watch;
  if (!access.api_key_file.empty()) watch.emplace(&loop, access.api_key_file, &keys);
  const auto is_loopback = IsLoopback(config.server.http.host);
  if (!is_loopback.ok()) return Fail(is_loopback.status());
  const HostNames hosts(config.server.http.host, access.allowed_hosts);
  const auto router = OptionsOf(config);
  if (!router.ok()) return Fail(router.status());
  MetricsRegistry registry;
  const auto control = ControlOf(process, &registry);
  if (!control.ok()) return Fail(control.status());
  // First of all: workers dial while the tokenizer loads.
  auto generator = RouterGenerator::Start(&loop, *router, *control);
  if (!generator.ok()) return Fail(generator.status());
  GaugeMetric expiry =
      registry.Gauge(ControlMetric("baton_cluster_certificate_expiry_timestamp_seconds"), {});
  const auto tell_expiry = [&] {
    expiry.Set(absl::ToDoubleSeconds((*generator)->certificate_expiry() - absl::UnixEpoch()));
  };
  tell_expiry();
  const auto reload = [&] {
    (*generator)->ReloadCertificate();
    tell_expiry();
  };
  std::optional<FileWatch> cluster_files;
  if (control->certificate != nullptr)
    cluster_files.emplace(&loop, PathsOf(config.cluster.tls), reload);
  process.reporter.ReportPort(StartReport::Kind::kControlPort, (*generator)->control_port());

  auto model = ServedModel::Load(config.model);
  if (!model.ok()) return Fail(model.status());
  if (const int64_t bytes = config.server.api.text_cache; bytes > 0)
    (*model)->segments = std::make_unique<SegmentCache>(static_cast<size_t>(bytes));
  (*model)->text_limit = config.server.api.text_deadline;
  TextPool pool({.n_threads = config.server.text_threads,
                 .max_jobs = static_cast<size_t>(router->max_waiting),
                 .max_bytes = static_cast<size_t>(config.server.api.text_queue)});
  const bool has_metrics_port = !*is_loopback && config.server.metrics_port >= 0;
  const std::vector<Route> routes =
      has_metrics_port ? RoutesWithout(RouteTable(), Scope::kMetrics)
                       : std::vector<Route>(RouteTable().begin(), RouteTable().end());
  const auto tracer = Tracer::Start(config.tracing, OtlpHead(config.tracing.service, BATON_VERSION),
                                    (*model)->name, &registry);
  if (!tracer.ok()) return Fail(tracer.status());
  ApiFront front(&loop, model->get(), generator->get(), &pool, &registry, routes, config.server.api,
                 {.version = BATON_VERSION,
                  .expected_workers = ExpectedWorkers(config),
                  .keys = watch ? &keys : nullptr,
                  .hosts = *is_loopback ? &hosts : nullptr,
                  .has_ui = config.server.api.ui,
                  .tracer = tracer->get()});
  (*generator)->SetListener(&front);
  const HttpServerOptions http = HttpOptions(config.server.http, (*model)->max_context);
  auto server = HttpServer::Start(&loop, http, &front);
  if (!server.ok()) return Fail(server.status());
  std::optional<MetricsEdge> edge;
  if (has_metrics_port) edge.emplace(&front, RouteTable(), watch ? &keys : nullptr, &registry);
  const auto metrics =
      ServeMetrics(&loop, config.server.metrics_port, http, edge ? &*edge : nullptr);
  if (!metrics.ok()) return Fail(metrics.status());
  const auto grpc = ServeGrpc(&loop, GrpcOptionsOf(config.server, http), server->get(), &front);
  if (!grpc.ok()) return Fail(grpc.status());
  process.reporter.ReportPort(StartReport::Kind::kHttpPort, (*server)->port());
  const int control_port = (*generator)->control_port();
  LogInfo("listening on %s, workers dial %s", PlacesOf(config.server.http, (*server)->port()),
          control_port == 0 ? config.router.control : absl::StrCat("port ", control_port));

  bool was_complete = false;
  (*generator)->SetOnChange([&, generator = generator->get()] {
    if (*grpc != nullptr) (*grpc)->SetServing(!front.NotReady());
    const ClusterView view = generator->View();
    const int prefill = config.cluster.colocated ? 1 : config.prefill.workers;
    const bool complete = view.prefill_workers >= std::max(1, prefill) &&
                          view.decode_workers >= std::max(1, config.decode.workers);
    if (complete && !was_complete) process.reporter.Report({});
    was_complete = was_complete || complete;
  });
  StopWatcher stop(&loop, &front, &config.server.shutdown_timeout,
                   process.reporter.has_supervisor());
  const auto take_settings = [&, generator = generator->get(), tracer = tracer->get()] {
    if (!process.reload->Read()) return;
    TakeLiveValues(*process.reload, &config);  // the front reads its own there
    const int max_waiting = config.router.router.max_waiting;
    generator->SetLimits(max_waiting, SizingGap(config));
    pool.SetMaxJobs(static_cast<size_t>(max_waiting));
    if (tracer != nullptr) tracer->SetSample(config.tracing.sample);
  };
  loop.OnStopSignal([&] { stop.OnSignal(); });
  reload_all = [&] {
    (*server)->ReloadCertificate();
    reload();
    if (*metrics != nullptr) (*metrics)->ReloadCertificate();
    if (*grpc != nullptr) (*grpc)->ReloadCertificate();
    if (watch) watch->Read();
    take_settings();
  };
  loop.Run();
  return 0;
}

}  // namespace baton
