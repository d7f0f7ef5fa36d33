#include "server/process/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/progress_bar.h"
#include "proto/unix_control.h"
#include "server/process/child_process.h"
#include "server/process/launch_spec.h"
#include "server/process/socket_folder.h"
#include "server/process/worker_placement.h"

namespace baton {
namespace {

constexpr int kSpinUs = 50;                              // of compute threads on CPUs of their own
constexpr absl::Duration kSettled = absl::Seconds(10);   // a life so long resets the pause
constexpr int kMaxEarlyKills = 3;                        // then starting it does not work
constexpr absl::Duration kLastGrace = absl::Seconds(3);  // beyond shutdown_timeout, then SIGKILL

ClusterKey NewKey() {
  ClusterKey key{};
  for (size_t i = 0; i < key.size(); i += 8) {
    const uint64_t bits = RandomId();
    for (size_t j = 0; j < 8; ++j) key[i + j] = static_cast<uint8_t>(bits >> (8 * j));
  }
  return key;
}

struct RoleProcess {
  std::string name, subcommand;
  std::optional<CpuPlacement> place;  // of a worker
  bool may_spin = false;
  std::optional<ChildProcess> process;
  absl::Time started, start_at = absl::InfinitePast();
  absl::Duration pause;
  double progress = 0;
  bool is_ready = false;
  bool must_reload = false;  // SIGHUP came before it could take one
  int early_kills = 0;       // times it was killed before it was ready, and before the cluster was
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options)
      : options_(std::move(options)),
        config_(options_.config),
        key_(NewKey()),
        progress_("loading the model", ProgressUnit::kShare, 1, stdout, options_.is_terminal) {}

  int Run();

 private:
  enum class Phase { kRunning, kDrainRouter, kDrainWorkers };

  void AddRoles();
  std::optional<SocketFolder> ChooseControl();
  void StartDue();
  absl::Status Start(RoleProcess* role);
  int PollTimeout() const;
  void OnSignals(int descriptor);
  void OnReport(RoleProcess* role, const StartReport& report);
  void Reap();
  static bool MayTryAgain(RoleProcess* role, bool was_killed);
  void OnDead(RoleProcess* role, int status);
  void BeginStop();
  void DrainWorkers();
  void KillAll();
  bool AnyAlive() const;
  void Reload();
  // SIGHUP asks to read settings, keys and certificates again, unless it is because the terminal
  // was closed.
  bool TerminalIsGone() const { return options_.is_terminal && ::isatty(STDOUT_FILENO) == 0; }
  void PrintReady();

  SupervisorOptions options_;
  Config config_;  // with the ports that were learned
  const ClusterKey key_;
  std::vector<RoleProcess> roles_;  // the router first
  ProgressBar progress_;
  Phase phase_ = Phase::kRunning;
  bool was_ready_ = false, failed_ = false, router_listens_ = false;
  absl::Time kill_at_ = absl::InfiniteFuture();
};

void Supervisor::AddRoles() {
  const CpuAllowance allowance = OwnCpuAllowance();
  const Placement placement = PlaceWorkers(config_, allowance, CurrentCpu());
  if (placement.exceeds_quota) {
    LogWarn("all workers computing want more than they may have (%s), and will be stopped at times",
            allowance.Text());
  }
  const auto add = [&](std::string name, std::string subcommand,
                       std::optional<CpuPlacement> place) {
    RoleProcess role;
    role.name = std::move(name);
    role.subcommand = std::move(subcommand);
    role.may_spin = place && MaySpin(placement, *place);
    role.place = std::move(place);
    role.pause = options_.min_pause;
    roles_.push_back(std::move(role));
  };
  add("router", "router", std::nullopt);
  for (size_t i = 0; i < placement.prefill.size(); ++i) {
    add(absl::StrCat("prefill", i), "prefill", placement.prefill[i]);
  }
  const char* decode_name = config_.cluster.colocated ? "worker" : "decode";
  for (size_t i = 0; i < placement.decode.size(); ++i) {
    add(absl::StrCat(decode_name, i), "decode", placement.decode[i]);
  }
}

// On one host control streams go over a Unix socket, in a folder of its own. Where none can be
// made, and where the settings name an address, over TCP. Nothing: no folder.
std::optional<SocketFolder> Supervisor::ChooseControl() {
  if (config_.router.control != RouterConfig().control) return std::nullopt;
  auto folder = SocketFolder::Make();
  if (!folder.ok()) {
    LogInfo("control streams go over %s: %s", config_.router.control,
            std::string(folder.status().message()));
    return std::nullopt;
  }
  config_.router.control = "unix:" + folder->file("control");
  return *std::move(folder);
}

absl::Status Supervisor::Start(RoleProcess* role) {
  Config config = config_;
  config.cluster.worker_name = role->name;
  config.cluster.metrics_port = 0;
  for (WorkerConfig* worker : {&config.prefill, &config.decode}) {
    if (!role->place) break;
    worker->cpus = role->place->cpus;
    worker->threads = role->place->threads;
    if (worker->spin_us < 0) worker->spin_us = role->may_spin ? kSpinUs : 0;
  }
  Settings settings;
  DeclareSettings(&config, &settings);
  LaunchSpec order;
  order.key = key_;
  order.settings = settings.Resolved();
  order.arguments = options_.arguments;
  ASSIGN_OR_RETURN(ChildProcess process,
                   ChildProcess::Start(options_.program, role->subcommand, order));
  role->process.emplace(std::move(process));
  role->started = MonotonicNow();
  role->is_ready = role->must_reload = false;
  LogInfo("started %s, process %d%s", role->name, role->process->pid(),
          role->place
              ? absl::StrCat(", cpus ", role->place->cpus.empty() ? "all" : role->place->cpus,
                             ", compute threads ", role->place->threads)
              : "");
  return absl::OkStatus();
}

// Workers are started once the router says where to dial.
void Supervisor::StartDue() {
  if (phase_ != Phase::kRunning) return;
  const absl::Time now = MonotonicNow();
  for (RoleProcess& role : roles_) {
    const bool is_router = &role == &roles_.front();
    if (role.process || role.start_at > now || (!is_router && !router_listens_)) continue;
    const absl::Status status = Start(&role);
    if (status.ok()) continue;
    LogError("cannot start %s: %s", role.name, std::string(status.message()));
    role.start_at = now + role.pause;
    role.pause = std::min(2 * role.pause, options_.max_pause);
  }
}

int Supervisor::PollTimeout() const {
  absl::Time next = kill_at_;
  for (const RoleProcess& role : roles_) {
    const bool waits = !role.process && (&role == &roles_.front() || router_listens_);
    if (phase_ == Phase::kRunning && waits) next = std::min(next, role.start_at);
  }
  if (next == absl::InfiniteFuture()) return -1;
  const absl::Duration left = std::max(next - MonotonicNow(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
}

void Supervisor::OnSignals(int descriptor) {
  signalfd_siginfo info{};
  while (::read(descriptor, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;  // Reap looks at all
    if (info.ssi_signo == SIGHUP && !TerminalIsGone()) {
      Reload();
      continue;
    }
    if (phase_ == Phase::kRunning) {
      BeginStop();
    } else {
      KillAll();  // asked twice
    }
  }
  Reap();
}

// A role that still starts may not wait for the signal yet, which would end it.
void Supervisor::Reload() {
  if (options_.reload != nullptr && options_.reload->Read())
    TakeLiveValues(*options_.reload, &config_);  // for roles that are started after this
  for (RoleProcess& role : roles_) {
    role.must_reload = !role.is_ready;
    if (role.process && role.is_ready) role.process->Signal(SIGHUP);
  }
}

void Supervisor::OnReport(RoleProcess* role, const StartReport& report) {
  switch (report.kind) {
    case StartReport::Kind::kProgress:
      role->progress = report.fraction;
      break;
    case StartReport::Kind::kControlPort: {
      router_listens_ = true;
      config_.cluster.router = config_.router.control;
      if (IsUnixAddress(config_.router.control)) break;
      // A router that is started again must be found, and clients must find it, where it was.
      const std::string host = config_.router.control.substr(0, config_.router.control.rfind(':'));
      config_.router.control = absl::StrCat(host, ":", report.port);
      config_.cluster.router = config_.router.control;
      break;
    }
    case StartReport::Kind::kHttpPort:
      config_.server.http.port = report.port;
      break;
    case StartReport::Kind::kMetricsPort:
      break;
    case StartReport::Kind::kKvCache:
      role->progress = 1;
      progress_.Note(
          absl::StrFormat("%s  KV cache %.1f MiB = %d pages = %d tokens, %.1f "
                          "sequences of %d tokens",
                          role->name, static_cast<double>(report.kv_bytes) / 1048576.0,
                          report.kv_pages, report.kv_tokens,
                          static_cast<double>(report.kv_tokens) /
                              static_cast<double>(std::max<int64_t>(1, report.max_context)),
                          report.max_context));
      break;
    case StartReport::Kind::kReady:
      role->is_ready = true;
      if (std::exchange(role->must_reload, false) && role->process) role->process->Signal(SIGHUP);
      if (role == &roles_.front() && !was_ready_) {
        was_ready_ = true;
        PrintReady();
      }
      break;
  }
  if (was_ready_) return;
  double sum = 0;
  for (const RoleProcess& each : roles_) sum += each.progress;
  progress_.Show(sum / static_cast<double>(std::max<size_t>(1, roles_.size() - 1)));
}

// The address of a curl command, with the flags that it takes to connect.
std::string CurlTarget(const HttpServerOptions& http) {
  if (http.port < 0) return absl::StrCat("--unix-socket ", http.uds, " http://localhost");
  HttpServerOptions tcp = http;
  tcp.uds.clear();
  std::string flags;
  if (http.tls.any()) flags = absl::StrCat("--cacert ", http.tls.cert, " ");
  if (!http.tls.client_ca.empty()) absl::StrAppend(&flags, "--cert CLIENT.pem --key CLIENT.key ");
  return absl::StrCat(flags, PlacesOf(tcp, http.port));
}

void Supervisor::PrintReady() {
  const HttpServerOptions& http = config_.server.http;
  const std::string workers =
      config_.cluster.colocated
          ? absl::StrCat(config_.decode.workers, " colocated")
          : absl::StrCat(config_.prefill.workers, " prefill + ", config_.decode.workers, " decode");
  progress_.Finish();
  std::printf("ready  %s  model %s  %s\n", PlacesOf(http, http.port).c_str(),
              config_.model.name.c_str(), workers.c_str());
  std::printf(
      "try:   curl -N %s/v1/chat/completions -H 'Content-Type: application/json' %s-d "
      "'{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"What is 17 + 25?\"}],"
      "\"temperature\":0}'\n",
      CurlTarget(http).c_str(),
      config_.server.access.api_key_file.empty() ? "" : "-H 'Authorization: Bearer KEY' ");
  std::fflush(stdout);
}

void Supervisor::Reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    for (RoleProcess& role : roles_) {
      if (role.process && role.process->pid() == pid) OnDead(&role, status);
    }
  }
}

// Before there was a ready cluster: a role that ends by itself says why, and would do so again. One
// that was up, or that somebody killed, may come up once more while others still start.
bool Supervisor::MayTryAgain(RoleProcess* role, bool was_killed) {
  return role->is_ready || (was_killed && ++role->early_kills < kMaxEarlyKills);
}

void Supervisor::OnDead(RoleProcess* role, int status) {
  for (const StartReport& report : role->process->ReadReports()) OnReport(role, report);
  role->process.reset();
  const std::string how = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                              : absl::StrCat("status ", WEXITSTATUS(status));
  if (phase_ == Phase::kRunning) {
    if (!was_ready_ && !MayTryAgain(role, WIFSIGNALED(status))) {
      LogError("%s ended with %s before the cluster was up; its message stands above", role->name,
               how);
      failed_ = true;
      BeginStop();
      return;
    }
    if (MonotonicNow() - role->started > kSettled) role->pause = options_.min_pause;
    LogWarn("%s ended with %s, starting it again in %s", role->name, how,
            absl::FormatDuration(role->pause));
    role->start_at = MonotonicNow() + role->pause;
    role->pause = std::min(2 * role->pause, options_.max_pause);
    return;
  }
  if (phase_ == Phase::kDrainRouter && role == &roles_.front()) DrainWorkers();
}

void Supervisor::BeginStop() {
  phase_ = Phase::kDrainRouter;
  progress_.Finish();
  kill_at_ = MonotonicNow() + config_.server.shutdown_timeout + kLastGrace;
  RoleProcess& router = roles_.front();
  // Before there was a ready cluster there is nothing to drain.
  if (router.process && was_ready_) {
    router.process->Signal(SIGTERM);
  } else {
    if (router.process) router.process->Signal(SIGTERM);
    DrainWorkers();
  }
}

void Supervisor::DrainWorkers() {
  phase_ = Phase::kDrainWorkers;
  for (const RoleProcess& role : roles_) {
    if (&role != &roles_.front() && role.process) role.process->Signal(SIGTERM);
  }
}

void Supervisor::KillAll() {
  kill_at_ = absl::InfiniteFuture();
  for (const RoleProcess& role : roles_) {
    if (role.process) role.process->Signal(SIGKILL);
  }
}

bool Supervisor::AnyAlive() const {
  return std::any_of(roles_.begin(), roles_.end(),
                     [](const RoleProcess& role) { return role.process.has_value(); });
}

int Supervisor::Run() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  BATON_CHECK(sigprocmask(SIG_BLOCK, &signals, nullptr) == 0);
  const int signal_descriptor = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  BATON_CHECK(signal_descriptor >= 0);
  AddRoles();
  const std::optional<SocketFolder> folder = ChooseControl();
  while (phase_ == Phase::kRunning || AnyAlive()) {
    StartDue();
    std::vector<pollfd> waits = {{signal_descriptor, POLLIN, 0}};
    for (const RoleProcess& role : roles_) {
      if (role.process) waits.push_back({role.process->report_descriptor(), POLLIN, 0});
    }
    ::poll(waits.data(), waits.size(), PollTimeout());
    if (MonotonicNow() >= kill_at_) {
      LogWarn("the time to stop is up, killing what is left");
      KillAll();
    }
    for (RoleProcess& role : roles_) {
      if (!role.process) continue;
      for (const StartReport& report : role.process->ReadReports()) OnReport(&role, report);
    }
    OnSignals(signal_descriptor);
  }
  ::close(signal_descriptor);
  return failed_ ? 1 : 0;
}

}  // namespace

int RunSupervisor(SupervisorOptions options) { return Supervisor(std::move(options)).Run(); }

}  // namespace baton
