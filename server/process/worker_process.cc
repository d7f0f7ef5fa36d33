#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cgroup.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "engine/checkpoint/weight_source.h"
#include "engine/cuda/device/gpu/gpu_engine.h"
#include "engine/kv/kv_layout.h"
#include "engine/load_backend.h"
#include "engine/step/backend.h"
#include "kvtransfer/links/ucx_link.h"
#include "kvtransfer/protocol/networks.h"
#include "lab/emulated_engine.h"
#include "lab/paced_link.h"
#include "lab/whole_planes.h"
#include "proto/control_channel.h"
#include "proto/router_addresses.h"
#include "proto/unix_control.h"
#include "server/access/key_file_watch.h"
#include "server/config/model_folder.h"
#include "server/process/cluster_certificate_watch.h"
#include "server/process/compute_device.h"
#include "server/process/partition_file.h"
#include "server/process/role_process.h"
#include "server/process/worker_endpoint.h"
#include "server/process/worker_grammars.h"
#include "worker/device_copier.h"
#include "worker/worker.h"

namespace baton {
namespace {

constexpr int kDecodeContexts = 32, kPrefillContexts = 8;
// Keeps a worker that has drained: requests that routers sent before they heard of it are refused
// meanwhile, and are no parts of a lost worker.
constexpr absl::Duration kFarewell = absl::Milliseconds(500);

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

// Returns how many processes of this machine load the model.
int WorkersOf(const Config& config) {
  return std::max(1,
                  config.decode.workers + (config.cluster.colocated ? 0 : config.prefill.workers));
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
  const EngineOptions& engine = worker.worker.engine;
  const KvLayout layout = KvLayout::For(model, engine.kv_type(), engine.page_tokens);
  KvSizing sizing;
  sizing.page_bytes = layout.page_bytes;
  sizing.pages_per_context =
      layout.PagesFor(engine.max_context > 0 ? engine.max_context : model.max_positions);
  sizing.contexts = role == Role::kPrefill ? kPrefillContexts : kDecodeContexts;
  sizing.memory_bytes = UsableMemory();
  sizing.n_workers = WorkersOf(config);
  return ChooseKvBytes(sizing);
}

absl::Status ReadCosts(const std::string& path, WorkerStart* start) {
  if (path.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(start->costs, ReadPartitionFile(path));
  start->costs_file = path;
  return absl::OkStatus();
}

LinkPace PaceOf(const LabConfig::Link& link) {
  return {.bytes_per_second = static_cast<double>(link.bytes_per_second),
          .latency_us = absl::ToInt64Microseconds(link.latency),
          .falls_after = link.falls_after};
}

// The user's options with those chosen at start.
WorkerOptions OptionsOf(const Config& config, Role role) {
  const WorkerConfig& worker = ConfigOf(config, role);
  WorkerOptions options = worker.worker;
  options.engine.model = config.model.path;
  options.engine.threads = ComputeThreads(worker.threads);
  options.engine.n_processes = WorkersOf(config);
  // Without a supervisor it is unknown who else uses these CPUs.
  options.engine.spin_us = std::max(0, worker.spin_us);
  options.transfer.listen_host = config.cluster.worker_host;
  if (!config.lab.streams) options.engine.limits.slice_keys = 0;
  return options;
}

// Null: control streams are plain text, which stays on this machine.
absl::StatusOr<std::shared_ptr<const ClusterCertificate>> CertificateOf(
    const ClusterTlsFiles& files, const std::vector<std::string>& routers, Role role) {
  for (const std::string& router : routers) {
    if (files.any() && IsUnixAddress(router))
      return absl::InvalidArgumentError(
          absl::StrCat("cluster.router: ", router,
                       " is on this machine, where no certificate is used: leave cluster.tls_cert, "
                       "cluster.tls_key and cluster.tls_ca out, or dial host:port"));
    if (!files.any() && !IsUnixAddress(router) && !IsLoopbackAddress(router))
      return absl::InvalidArgumentError(
          absl::StrCat("cluster.router: ", router,
                       " is not on the loopback, and the control stream would be plain text: set "
                       "cluster.tls_cert, cluster.tls_key and cluster.tls_ca"));
  }
  if (!files.any()) return nullptr;
  ASSIGN_OR_RETURN(auto certificate, ClusterCertificate::Load(files, RoleName(role)));
  certificate->WarnOfExpiry();
  return certificate;
}

// Ends the process at once: what is under way on the device never ends, so nothing is unwound. The
// routers see their streams end, and go on elsewhere.
void ExitLost(const std::string& why) {
  LogError(
      "the device computes no more (%s): this worker ends, and routers send its requests to others "
      "if there are any; start it again unless a supervisor does",
      why);
  ::_exit(kExitLost);
}

absl::StatusOr<WorkerStart> StartOf(const RoleConfig& process, Role role) {
  const Config& config = process.config;
  WorkerStart start;
  start.name = config.cluster.worker_name;
  start.role = config.cluster.colocated ? Role::kBoth : role;
  ASSIGN_OR_RETURN(start.routers, ParseRouterAddresses(config.cluster.router));
  start.key = process.key;
  ASSIGN_OR_RETURN(start.certificate, CertificateOf(config.cluster.tls, start.routers, start.role));
  const LinkPace pace = PaceOf(config.lab.link);
  const TransferOptions& transfer = ConfigOf(config, role).worker.transfer;
  ASSIGN_OR_RETURN(const UcxLinkOptions link, UcxLinkOptionsOf(transfer));
  ASSIGN_OR_RETURN(const Networks allowed,
                   Networks::Parse(transfer.allowed_cidrs, "kvtransfer.allowed_cidrs"));
  if (allowed.ContainAll() && !config.cluster.worker_host.starts_with("127.")) {
    LogWarn(
        "every host may reach the KV ports, and UCX trusts it: name the workers' networks in "
        "kvtransfer.allowed_cidrs (docs/SECURITY.md)");
  }
  start.make_link =
      Paced([host = config.cluster.worker_host, link] { return MakeUcxLink(host, link); }, pace);
  start.link_bytes_per_second = pace.bytes_per_second;
  if (!config.lab.cuts_through) start.filter = std::make_shared<WholePlanes>();
  start.lost = ExitLost;
  start.compile_grammar = WorkerGrammars(config.model.path);
  ASSIGN_OR_RETURN(start.kv_bytes, KvBytes(config, role));
  if (start.role != Role::kDecode)
    RETURN_IF_ERROR(ReadCosts(ConfigOf(config, role).cost_file, &start));
  return start;
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

// Ends the loop soon after no request runs here any more, when the time is up, or at a second
// signal. Until then the loop runs, so that /metrics and /readyz show the worker draining.
class DrainWatcher {
 public:
  // limit: read at the signal; outlives the watcher.
  DrainWatcher(EventLoop* loop, Worker* worker, const absl::Duration* limit)
      : loop_(loop), worker_(worker), limit_(limit), deadline_(loop), farewell_(loop) {}

  void OnSignal() {
    if (std::exchange(stopping_, true)) {
      if (!has_drained_) LogWarn("stopping at once, running requests are cancelled");
      loop_->Stop();
      return;
    }
    LogInfo("stopping: nothing new is taken, running requests have %s",
            absl::FormatDuration(*limit_));
    deadline_.Set(MonotonicNow() + *limit_, [this] {
      LogWarn("the time to stop is up, running requests are cancelled");
      loop_->Stop();
    });
    worker_->Drain([this] { loop_->Post([this] { SayFarewell(); }); });
  }

 private:
  void SayFarewell() {
    has_drained_ = true;
    deadline_.Cancel();
    const bool is_heard = worker_->metrics().routers > 0;
    farewell_.Set(MonotonicNow() + (is_heard ? kFarewell : absl::ZeroDuration()),
                  [this] { loop_->Stop(); });
  }

  EventLoop* loop_;
  Worker* worker_;
  const absl::Duration* const limit_;
  EventLoop::Timer deadline_, farewell_;
  bool stopping_ = false, has_drained_ = false;
};

int Fail(const absl::Status& status) {
  LogError("%s", std::string(status.message()));
  return 2;
}

// Puts an emulated device between the engine and the worker.
absl::StatusOr<std::unique_ptr<EmulatedEngine>> Emulate(const Config& config, Role role,
                                                        WorkerStart* start,
                                                        std::unique_ptr<Backend>* backend) {
  const LabConfig::Device& device = config.lab.device;
  const int64_t page_bytes = (*backend)->kv_layout().page_bytes;
  ASSIGN_OR_RETURN(std::unique_ptr<EmulatedEngine> engine,
                   EmulatedEngine::Create(std::move(*backend), device, start->kv_bytes));
  if (device.memory > 0 && ConfigOf(config, role).kv_memory == 0) {
    ASSIGN_OR_RETURN(start->kv_bytes,
                     KvBytesOnDevice(engine->memory(), config.device.memory_share, page_bytes));
  }
  engine->AddTo(start);
  *backend = engine->TakeBackend();
  return engine;
}

// Puts a GPU's engine in the place of the CPU's.
absl::StatusOr<std::unique_ptr<GpuEngine>> LoadOnGpu(const Config& config, Role role,
                                                     const EngineOptions& options, const Gpu& gpu,
                                                     StartReporter* reporter, WorkerStart* start) {
  ASSIGN_OR_RETURN(std::unique_ptr<GpuEngine> engine,
                   GpuEngine::Create(gpu.plugin.api(), {gpu.index, gpu.name, options},
                                     ReportProgress, reporter));
  if (ConfigOf(config, role).kv_memory == 0) {
    const double share = config.device.memory_share / WorkersOf(config);
    ASSIGN_OR_RETURN(start->kv_bytes, KvBytesOnDevice(engine->device().memory(), share,
                                                      engine->backend().kv_layout().page_bytes));
  }
  start->make_copier = [made = engine.get()](const PoolView& pool, std::function<void()> wake,
                                             WorkerStart::TellsWhy lost) {
    return std::make_unique<DeviceCopier>(made->device(), made->backend(), pool,
                                          DeviceCopier::Ports{std::move(wake), std::move(lost)});
  };
  return engine;
}

}  // namespace

int64_t ChooseKvBytes(const KvSizing& sizing) {
  const int64_t wanted = sizing.page_bytes * sizing.pages_per_context * sizing.contexts;
  const int64_t share = sizing.memory_bytes / 4 / std::max(1, sizing.n_workers);
  return std::max(std::min(wanted, share), sizing.page_bytes * 2);
}

int RunWorker(const RoleConfig& process, Role role) {
  Config config = process.config;  // takes live values
  const absl::Status placed = TakePlace(ConfigOf(config, role));
  if (!placed.ok()) return Fail(placed);
  const auto gpu = OpenDevice(config.device.name, PluginOfProgram());
  if (!gpu.ok()) return Fail(gpu.status());
  auto start = StartOf(process, role);
  if (!start.ok()) return Fail(start.status());
  EventLoop loop;
  std::function<void()> reload;
  loop.OnReloadSignal([&] { reload(); });  // one that comes while weights are loaded is kept

  StartReporter reporter = process.reporter;
  const WorkerOptions options = OptionsOf(config, role);
  if (*gpu && (config.lab.device.is_emulated || config.lab.engine.dense_mask)) {
    return Fail(absl::InvalidArgumentError(
        "lab.device and lab.attention compare engines of the CPU; take them away, or --device"));
  }
  std::unique_ptr<GpuEngine> on_gpu;
  absl::StatusOr<std::unique_ptr<Backend>> backend = nullptr;
  if (*gpu) {
    auto made = LoadOnGpu(config, role, options.engine, **gpu, &reporter, &*start);
    if (!made.ok()) return Fail(made.status());
    on_gpu = *std::move(made);
    backend = on_gpu->TakeBackend();
  } else {
    backend = LoadLabBackend(options.engine, config.lab.engine, ReportProgress, &reporter);
  }
  if (!backend.ok()) return Fail(backend.status());
  std::unique_ptr<EmulatedEngine> emulated;
  if (config.lab.device.is_emulated) {
    auto made = Emulate(config, role, &*start, &*backend);
    if (!made.ok()) return Fail(made.status());
    emulated = *std::move(made);
  }
  // Until here SIGTERM just ends the process; from here on routers may know the worker.
  std::optional<DrainWatcher> stop;
  loop.OnStopSignal([&] { stop->OnSignal(); });
  auto worker = Worker::Start(options, *start, *std::move(backend));
  if (!worker.ok()) return Fail(worker.status());
  ReportKvCache(reporter, **worker);
  stop.emplace(&loop, worker->get(), &config.server.shutdown_timeout);
  // A worker computes whatever the file of keys says; while it is wrong nobody reads metrics.
  ApiKeys keys({});
  std::optional<KeyFileWatch> watch;
  if (const std::string& path = config.server.access.api_key_file; !path.empty()) {
    watch.emplace(&loop, path, &keys, /*is_quiet=*/reporter.has_supervisor());
    watch->Read();
  }
  WorkerEndpoint endpoint(
      config.cluster.worker_name, ServedNames(config.model.name).front(),
      [&] { return (*worker)->metrics(); }, config.router.router.engine_patience,
      watch ? &keys : nullptr, BATON_VERSION);
  HttpServerOptions http;
  http.host = config.cluster.worker_host;
  http.port = config.cluster.metrics_port;
  auto server = HttpServer::Start(&loop, http, &endpoint);
  if (!server.ok()) return Fail(server.status());
  endpoint.Attach(&loop, server->get());
  std::optional<ClusterCertificateWatch> certificate;
  if (start->certificate != nullptr)
    certificate.emplace(&loop, start->certificate,
                        [&](absl::Time expiry) { endpoint.TellCertificateExpiry(expiry); });
  reporter.ReportPort(StartReport::Kind::kMetricsPort, (*server)->port());
  LogInfo("metrics on http://%s:%d/metrics", config.cluster.worker_host, (*server)->port());
  reload = [&] {
    if (process.reload->Read()) TakeLiveValues(*process.reload, &config);
    if (watch) watch->Read();
    if (certificate) certificate->Look();
  };
  reporter.Report({});  // from here on the supervisor may have it read settings again

  loop.Run();
  (*worker)->Stop();
  if (emulated == nullptr) return 0;
  emulated->WorkerStopped();
  return emulated->findings() == 0 ? 0 : kExitFindings;
}

}  // namespace baton
