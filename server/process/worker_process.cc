#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cgroup.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/kv/kv_layout.h"
#include "engine/model/text_file.h"
#include "engine/step/backend.h"
#include "kvtransfer/links/paced_link.h"
#include "kvtransfer/links/ucx_link.h"
#include "server/config/model_folder.h"
#include "server/process/role_process.h"
#include "server/process/worker_endpoint.h"
#include "worker/worker.h"

namespace baton {
namespace {

constexpr size_t kMaxTableBytes = 1 << 20;
constexpr int kDecodeContexts = 32, kPrefillContexts = 8;

const WorkerConfig& ConfigOf(const Config& config, Role role) {
  return role == Role::kPrefill ? config.prefill : config.decode;
}

// Binds the process to its CPUs before any thread exists, so that all inherit it.
absl::Status TakePlace(const WorkerConfig& worker) {
  ASSIGN_OR_RETURN(const std::vector<int> cpus, ParseCpuList(worker.cpus));
  if (!cpus.empty() && !StayOnCpus(cpus)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot run on the CPUs ", worker.cpus, "; change the setting cpus"));
  }
  if (setpriority(PRIO_PROCESS, 0, worker.nice) != 0) {
    LogWarn("cannot set priority %d; it stays as it was", worker.nice);
  }
  return absl::OkStatus();
}

// The machine's memory, or the container's if that is less.
int64_t UsableMemory() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, OwnMemoryLimit().value_or(machine));
}

absl::StatusOr<int64_t> KvBytes(const Config& config, Role role) {
  const WorkerConfig& worker = ConfigOf(config, role);
  if (worker.kv_memory > 0) return worker.kv_memory;
  ASSIGN_OR_RETURN(const ModelDesc model, ReadModelDesc(config.model.path));
  EngineOptions engine;
  engine.dtype = config.model.dtype;
  engine.kv_dtype = config.model.kv_dtype;
  const KvLayout layout = KvLayout::For(model, engine.kv_type(), config.model.page_tokens);
  KvSizing wish;
  wish.page_bytes = layout.page_bytes;
  wish.pages_per_context = layout.PagesFor(config.model.max_context > 0 ? config.model.max_context
                                                                        : model.max_positions);
  wish.contexts = role == Role::kPrefill ? kPrefillContexts : kDecodeContexts;
  wish.memory_bytes = UsableMemory();
  wish.n_workers = config.decode.workers + (config.cluster.colocated ? 0 : config.prefill.workers);
  return ChooseKvBytes(wish);
}

absl::Status ReadCosts(const std::string& path, WorkerOptions* options) {
  if (path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTableBytes));
  ASSIGN_OR_RETURN(PartitionTable table, ParsePartitionTable(text, path));
  options->costs = std::make_shared<const PartitionTable>(std::move(table));
  options->costs_file = path;
  return absl::OkStatus();
}

WorkerOptions OptionsOf(const RoleConfig& start, Role role, int64_t kv_bytes) {
  const Config& config = start.config;
  const WorkerConfig& worker = ConfigOf(config, role);
  WorkerOptions options;
  options.name = config.cluster.worker_name;
  options.role = config.cluster.colocated ? Role::kBoth : role;
  options.engine.model = config.model.path;
  options.engine.dtype = config.model.dtype;
  options.engine.kv_dtype = config.model.kv_dtype;
  options.engine.int4_group = config.model.int4_group;
  options.engine.isa = config.model.isa;
  options.engine.lab.attention = config.model.attention;
  options.engine.threads = ComputeThreads(worker.threads);
  options.engine.spin_us = std::max(0, worker.spin_us);  // without a supervisor: who knows
  options.engine.page_tokens = config.model.page_tokens;
  options.engine.max_step_tokens = worker.step_tokens;
  options.engine.max_slice_tokens = config.slices.max_slice_tokens;
  options.engine.max_context = config.model.max_context;
  options.engine.cache_dir = config.model.weight_cache;
  options.engine.random_seed = static_cast<uint64_t>(config.model.random_seed);
  const LinkPace pace = {
      .bytes_per_second = static_cast<double>(config.cluster.link_bytes_per_second),
      .latency_us = absl::ToInt64Microseconds(config.cluster.link_latency),
      .falls_after = config.cluster.link_falls_after};
  options.make_link =
      Paced([host = config.cluster.worker_host] { return MakeUcxLink(host, 0); }, pace);
  options.link_bytes_per_second = pace.bytes_per_second;
  options.router_address = config.cluster.router;
  options.key = start.key;
  options.kv_bytes = kv_bytes;
  options.max_batch = worker.max_batch;
  options.reuse_kv = worker.reuse_kv;
  options.streaming = config.slices.streaming == "ordered";
  options.cut_through = config.slices.forwarding == "cut_through";
  return options;
}

void ReportProgress(void* reporter, double fraction) {
  static_cast<const StartReporter*>(reporter)->ReportProgress(fraction);
}

void ReportKvCache(const StartReporter& reporter, const Worker& worker) {
  const WorkerAnnounce& announce = worker.announce();
  StartReport report;
  report.kind = StartReport::Kind::kKvCache;
  report.kv_pages = announce.pages_total;
  report.kv_tokens = int64_t{announce.pages_total} * announce.page_tokens;
  report.kv_bytes = int64_t{announce.pages_total} * worker.backend().kv_layout().page_bytes;
  report.max_context = announce.max_context;
  reporter.Report(report);
  LogInfo("numerics %s, isa %s, kv pages %d of %d tokens, transfer at %s", announce.numerics_id,
          worker.backend().isa(), announce.pages_total, announce.page_tokens,
          announce.transfer.address);
}

// Ends the loop when no request runs here any more, when the time is up, or at a second signal.
// Until then the loop runs, so that /metrics and /readyz show the worker draining.
class DrainWatcher {
 public:
  DrainWatcher(EventLoop* loop, Worker* worker, absl::Duration limit)
      : loop_(loop), worker_(worker), limit_(limit), deadline_(loop) {}

  void OnSignal() {
    if (std::exchange(stopping_, true)) {
      LogWarn("stopping at once, running requests are cancelled");
      loop_->Stop();
      return;
    }
    LogInfo("stopping: nothing new is taken, running requests have %s",
            absl::FormatDuration(limit_));
    deadline_.Set(MonotonicNow() + limit_, [this] {
      LogWarn("the time to stop is up, running requests are cancelled");
      loop_->Stop();
    });
    worker_->Drain([loop = loop_] { loop->Post([loop] { loop->Stop(); }); });
  }

 private:
  EventLoop* loop_;
  Worker* worker_;
  const absl::Duration limit_;
  EventLoop::Timer deadline_;
  bool stopping_ = false;
};

int Fail(const absl::Status& status) {
  LogError("%s", std::string(status.message()));
  return 2;
}

}  // namespace

int64_t ChooseKvBytes(const KvSizing& wish) {
  const int64_t wanted = wish.page_bytes * wish.pages_per_context * wish.contexts;
  const int64_t share = wish.memory_bytes / 4 / std::max(1, wish.n_workers);
  return std::max(std::min(wanted, share), wish.page_bytes * 2);
}

int RunWorker(const RoleConfig& start, Role role) {
  const Config& config = start.config;
  const absl::Status placed = TakePlace(ConfigOf(config, role));
  if (!placed.ok()) return Fail(placed);
  const auto kv_bytes = KvBytes(config, role);
  if (!kv_bytes.ok()) return Fail(kv_bytes.status());

  StartReporter reporter = start.reporter;
  WorkerOptions options = OptionsOf(start, role, *kv_bytes);
  if (options.role != Role::kDecode) {
    const absl::Status read = ReadCosts(config.slices.cost_file, &options);
    if (!read.ok()) return Fail(read);
  }
  auto worker = Worker::Start(options, ReportProgress, &reporter);
  if (!worker.ok()) return Fail(worker.status());
  ReportKvCache(reporter, **worker);

  EventLoop loop;
  DrainWatcher stop(&loop, worker->get(), config.server.shutdown_timeout);
  loop.OnStopSignal([&] { stop.OnSignal(); });  // until here SIGTERM just ends the process
  WorkerEndpoint endpoint(config.cluster.worker_name, config.model.name,
                          [&] { return (*worker)->metrics(); });
  HttpServerOptions http;
  http.host = config.cluster.worker_host;
  http.port = config.cluster.metrics_port;
  auto server = HttpServer::Start(&loop, http, &endpoint);
  if (!server.ok()) return Fail(server.status());
  endpoint.Attach(&loop, server->get());
  reporter.ReportPort(StartReport::Kind::kMetricsPort, (*server)->port());
  LogInfo("metrics on http://%s:%d/metrics", config.cluster.worker_host, (*server)->port());
  reporter.Report({});

  loop.Run();
  (*worker)->Stop();
  return 0;
}

}  // namespace baton
