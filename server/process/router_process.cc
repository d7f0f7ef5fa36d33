#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/clock.h"
#include "common/log.h"
#include "engine/model/text_file.h"
#include "planner/partition_table.h"
#include "server/api/api_front.h"
#include "server/api/router_generator.h"
#include "server/process/role_process.h"

namespace baton {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// After the last answer: time for workers to hear that they may drain.
constexpr absl::Duration kFarewell = absl::Milliseconds(50);

size_t BodyLimit(const ServerConfig& server, int64_t max_context) {
  if (server.max_body > 0) return static_cast<size_t>(server.max_body);
  return static_cast<size_t>(std::clamp(32 * max_context, kMiB, 64 * kMiB));
}

HttpServerOptions HttpOptions(const ServerConfig& server, int64_t max_context) {
  HttpServerOptions options;
  options.host = server.host;
  options.port = server.port;
  options.limits.max_header = static_cast<size_t>(server.max_header);
  options.limits.max_body = BodyLimit(server, max_context);
  options.max_connections = server.max_connections;
  options.header_timeout = server.header_timeout;
  options.body_timeout = server.body_timeout;
  options.idle_timeout = server.idle_timeout;
  options.write_timeout = server.write_timeout;
  options.finish_half_closed = server.half_close == "finish";
  options.max_unsent = static_cast<size_t>(server.max_unsent);
  return options;
}

constexpr size_t kMaxTableBytes = 1 << 20;

// The table fits to the setting of ranks; whether it fits to the model is seen when workers join.
absl::Status ReadPartition(const RouterConfig& config, RouterOptions* options) {
  if (config.partition == "even") options->partition = PartitionMode::kEven;
  if (config.partition != "table") return absl::OkStatus();
  const std::string& path = config.partition_table;
  if (path.empty())
    return absl::InvalidArgumentError("lab.partition is table: set lab.partition_table");
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTableBytes));
  ASSIGN_OR_RETURN(PartitionTable table, ParsePartitionTable(text, path));
  if (!table.of_ranks.contains(config.relay_max_ranks))
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has nothing for %d ranks (router.relay_max_ranks): tune it for so many workers "
        "(baton tune), or change router.relay_max_ranks",
        path, config.relay_max_ranks));
  options->partition = PartitionMode::kTable;
  options->partition_table = std::make_shared<const PartitionTable>(std::move(table));
  return absl::OkStatus();
}

int ExpectedWorkers(const Config& config) {
  return config.decode.workers + (config.cluster.colocated ? 0 : config.prefill.workers);
}

ApiFrontOptions FrontOptions(const Config& config) {
  ApiFrontOptions options;
  options.version = BATON_VERSION;
  options.cors_origin = config.server.cors_origin;
  options.sse_keepalive = config.server.sse_keepalive;
  options.inline_text = config.server.inline_text;
  options.expected_workers = ExpectedWorkers(config);
  return options;
}

int Fail(const absl::Status& status) {
  LogError("%s", std::string(status.message()));
  return 2;
}

// Ends the loop when everything has been answered, when the time is up, or at a second signal (of a
// user; a supervisor asks again with SIGKILL, and its SIGTERM may come with one to the whole unit).
class StopWatcher {
 public:
  StopWatcher(EventLoop* loop, ApiFront* front, absl::Duration limit, bool has_supervisor)
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
            absl::FormatDuration(limit_));
    deadline_.Set(MonotonicNow() + limit_, [this] {
      LogWarn("the time to stop is up, running requests are cut off");
      loop_->Stop();
    });
    front_->Drain([this] { farewell_.Set(MonotonicNow() + kFarewell, [this] { loop_->Stop(); }); });
  }

 private:
  EventLoop* loop_;
  ApiFront* front_;
  const absl::Duration limit_;
  const bool has_supervisor_;
  EventLoop::Timer deadline_, farewell_;
  bool stopping_ = false;
};

}  // namespace

int RunRouter(const RoleConfig& start) {
  const Config& config = start.config;
  EventLoop loop;
  RouterOptions router_options;
  router_options.max_waiting = config.router.max_waiting;
  router_options.max_attempts = config.router.max_attempts;
  router_options.max_lost_attempts = config.router.max_lost_attempts;
  router_options.relay_min_tokens = config.router.relay_min_tokens;
  router_options.relay_max_ranks = config.router.relay_max_ranks;
  if (config.router.relay_push == "all") router_options.relay_push = RelayPush::kAll;
  if (config.router.relay_push == "tail") router_options.relay_push = RelayPush::kTail;
  router_options.relay_min_ranks = config.router.relay_min_ranks;
  if (const absl::Status read = ReadPartition(config.router, &router_options); !read.ok())
    return Fail(read);
  router_options.worker_wait = config.router.worker_wait;
  router_options.worker_silence = config.router.worker_silence;
  // First of all: workers dial while the tokenizer loads.
  auto generator = RouterGenerator::Start(&loop, router_options, config.router.control, start.key);
  if (!generator.ok()) return Fail(generator.status());
  start.reporter.ReportPort(StartReport::Kind::kControlPort, (*generator)->control_port());

  auto model = ServedModel::Load(config.model);
  if (!model.ok()) return Fail(model.status());
  MetricsRegistry registry;
  TextPool pool(config.server.text_threads, static_cast<size_t>(config.router.max_waiting));
  ApiFront front(&loop, model->get(), generator->get(), &pool, &registry, FrontOptions(config));
  (*generator)->SetListener(&front);
  auto server = HttpServer::Start(&loop, HttpOptions(config.server, (*model)->max_context), &front);
  if (!server.ok()) return Fail(server.status());
  front.Attach(server->get());
  start.reporter.ReportPort(StartReport::Kind::kHttpPort, (*server)->port());
  LogInfo("listening on http://%s:%d, workers dial port %d", config.server.host, (*server)->port(),
          (*generator)->control_port());

  bool was_complete = false;
  (*generator)->SetOnChange([&, generator = generator->get()] {
    const ClusterView view = generator->View();
    const int prefill = config.cluster.colocated ? 1 : config.prefill.workers;
    const bool complete = view.prefill_workers >= std::max(1, prefill) &&
                          view.decode_workers >= std::max(1, config.decode.workers);
    if (complete && !was_complete) start.reporter.Report({});
    was_complete = was_complete || complete;
  });
  StopWatcher stop(&loop, &front, config.server.shutdown_timeout, start.reporter.has_supervisor());
  loop.OnStopSignal([&] { stop.OnSignal(); });
  loop.Run();
  return 0;
}

}  // namespace baton
