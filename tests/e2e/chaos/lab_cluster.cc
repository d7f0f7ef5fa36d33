#include "tests/e2e/chaos/lab_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/load/metrics_page.h"

namespace baton {
namespace {

constexpr int kMetricsPort = 9100;  // every host has its own addresses
constexpr absl::Duration kStartLimit = absl::Seconds(60), kStopLimit = absl::Seconds(60);
constexpr absl::Duration kLook = absl::Milliseconds(50);

std::vector<std::string> WorkerNames() {
  std::vector<std::string> names;
  for (int i = 0; i < kPrefillWorkers; ++i) names.push_back(absl::StrCat("prefill", i));
  for (int i = 0; i < kDecodeWorkers; ++i) names.push_back(absl::StrCat("decode", i));
  return names;
}

bool WaitUntil(absl::Duration limit, const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + limit; absl::Now() < end; absl::SleepFor(kLook)) {
    if (condition()) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LabCluster>> LabCluster::Start(
    std::vector<std::string> args, const std::string& folder, Wires wires,
    std::vector<std::string> prefill_args) {
  std::unique_ptr<LabCluster> cluster(new LabCluster(folder));
  if (wires == Wires::kNamespaces) {
    ASSIGN_OR_RETURN(cluster->lab_, NetworkLab::Build(WorkerNames()));
  }
  std::ofstream(folder + "/key") << std::string(64, 'a') << "\n";
  std::filesystem::permissions(folder + "/key", std::filesystem::perms::owner_read);
  cluster->args_ = std::move(args);
  cluster->prefill_args_ = std::move(prefill_args);
  cluster->args_.insert(
      cluster->args_.end(),
      {"--cluster.key_file=" + folder + "/key", "--prefill.threads=1", "--decode.threads=1",
       absl::StrCat("--prefill=", kPrefillWorkers), absl::StrCat("--decode=", kDecodeWorkers)});
  RETURN_IF_ERROR(cluster->StartRouter());
  for (const std::string& name : WorkerNames()) RETURN_IF_ERROR(cluster->StartWorker(name));
  const bool ready = WaitUntil(kStartLimit, [&] {
    const auto page = MetricsPage::Fetch(cluster->url_);
    return page.ok() && page->Sum("baton_workers") == kPrefillWorkers + kDecodeWorkers;
  });
  if (!ready) return absl::DeadlineExceededError("no ready cluster:\n" + cluster->Log());
  return cluster;
}

absl::Status LabCluster::StartRouter() {
  std::vector<std::string> command = {BATON_BINARY, "router"};
  command.insert(command.end(), args_.begin(), args_.end());
  command.push_back("--port=0");
  RETURN_IF_ERROR(Spawn("router", std::move(command)));
  // "listening on http://127.0.0.1:PORT, workers dial port PORT"
  int api = 0, control = 0;
  const bool listens = WaitUntil(kStartLimit, [&] {
    const std::string log = LogOf("router");
    const size_t at = log.find("listening on http://");
    return at != std::string::npos &&
           std::sscanf(log.c_str() + at, "listening on http://%*[^:]:%d, workers dial port %d",
                       &api, &control) == 2;
  });
  if (!listens) return absl::DeadlineExceededError("the router does not listen:\n" + Log());
  url_ = HttpUrl{"127.0.0.1", api};
  members_.back().metrics = url_;
  control_ = HttpUrl{"127.0.0.1", control};
  if (lab_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(router_relay_, TcpRelay::Start("", lab_->Address("router"), control_));
  control_ = HttpUrl{lab_->Address("router"), router_relay_->port()};
  return absl::OkStatus();
}

absl::Status LabCluster::StartWorker(const std::string& name) {
  const std::string address = lab_ ? lab_->Address(name) : "127.0.0.1";
  ASSIGN_OR_RETURN(std::unique_ptr<TcpRelay> relay,
                   TcpRelay::Start(lab_ ? lab_->Namespace(name) : "", "127.0.0.1", control_));
  std::vector<std::string> command;
  if (lab_ != nullptr) {
    command = lab_->On(name);
    // Network namespaces still share memory between the "hosts", which UCX would find.
    command.insert(command.end(), {"env", "UCX_TLS=tcp"});
  }
  const bool is_prefill = name.starts_with("prefill");
  command.insert(command.end(), {BATON_BINARY, is_prefill ? "prefill" : "decode"});
  command.insert(command.end(), args_.begin(), args_.end());
  if (is_prefill) command.insert(command.end(), prefill_args_.begin(), prefill_args_.end());
  command.insert(command.end(),
                 {absl::StrCat("--cluster.router=127.0.0.1:", relay->port()),
                  "--cluster.worker_name=" + name, "--cluster.worker_host=" + address,
                  absl::StrCat("--cluster.metrics_port=", lab_ ? kMetricsPort : 0)});
  relays_[name] = std::move(relay);
  RETURN_IF_ERROR(Spawn(name, std::move(command)));
  if (lab_ != nullptr) members_.back().metrics = HttpUrl{address, kMetricsPort};
  return absl::OkStatus();
}

absl::Status LabCluster::Disturb(FaultKind kind, const std::string& victim,
                                 const std::string& other) {
  if (kind != FaultKind::kMute) return lab_->Disturb(kind, victim, other);
  if (++n_mutes_[victim] == 1) relays_.at(victim)->Hold(true);
  return absl::OkStatus();
}

absl::Status LabCluster::Heal(FaultKind kind, const std::string& victim, const std::string& other) {
  if (kind != FaultKind::kMute) return lab_->Heal(kind, victim, other);
  if (--n_mutes_[victim] == 0) relays_.at(victim)->Hold(false);
  return absl::OkStatus();
}

int64_t LabCluster::BytesFrom(const std::string& worker) const {
  return relays_.at(worker)->n_forwarded();
}

absl::Status LabCluster::Spawn(const std::string& name, std::vector<std::string> command) {
  std::vector<char*> argv;
  for (std::string& arg : command) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const std::string path = absl::StrCat(folder_, "/", name, ".log");
  const int log = ::open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return absl::InternalError(path + " cannot be written");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(log);
  if (pid < 0) return absl::InternalError("fork failed");
  members_.push_back(Member{name, pid, std::nullopt});
  return absl::OkStatus();
}

std::string LabCluster::LogOf(const std::string& name) const {
  std::ifstream file(absl::StrCat(folder_, "/", name, ".log"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string LabCluster::Log() const {
  std::string all = LogOf("router");
  for (const std::string& name : WorkerNames()) all += LogOf(name);
  return all;
}

// Stops the router first, because it lets requests end and tells the workers.
absl::Status LabCluster::Stop() {
  absl::Status status;
  for (const Member& member : members_) {
    ::kill(member.pid, SIGTERM);
    int how = -1;
    const bool ended =
        WaitUntil(kStopLimit, [&] { return ::waitpid(member.pid, &how, WNOHANG) == member.pid; });
    if (!ended) {
      ::kill(member.pid, SIGKILL);
      ::waitpid(member.pid, &how, 0);
    }
    if (!ended || !WIFEXITED(how) || WEXITSTATUS(how) != 0) {
      status.Update(absl::InternalError(
          absl::StrFormat("%s %s with status %d", member.name,
                          ended ? "ended after SIGTERM" : "had to be killed and ended", how)));
    }
  }
  members_.clear();
  return status;
}

LabCluster::~LabCluster() {
  for (const Member& member : members_) {
    ::kill(member.pid, SIGKILL);
    ::waitpid(member.pid, nullptr, 0);
  }
}

}  // namespace baton
