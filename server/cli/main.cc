// The one main: reads the command line and becomes what it asks for.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/log_level.h"
#include "common/secret_file.h"
#include "proto/control_channel.h"
#include "server/cli/command_line.h"
#include "server/cli/doctor.h"
#include "server/cli/new_key.h"
#include "server/cli/pull.h"
#include "server/cli/quantize.h"
#include "server/cli/top.h"
#include "server/config/config_reload.h"
#include "server/config/model_folder.h"
#include "server/process/role_process.h"
#include "server/process/supervisor.h"

namespace baton {
namespace {

constexpr size_t kMaxKeyBytes = 4096;  // of the cluster key's file

std::string ReadAll(int descriptor) {
  std::string text;
  char chunk[4096];
  ssize_t n = 0;
  while ((n = ::read(descriptor, chunk, sizeof chunk)) > 0)
    text.append(chunk, static_cast<size_t>(n));
  ::close(descriptor);
  return text;
}

// Resolves the paths that every command with a model needs: the model's folder, and the folder of
// packed weights.
absl::Status ResolvePaths(Config* config) {
  RETURN_IF_ERROR(ResolveModel(&config->model));
  for (WorkerConfig* role : {&config->prefill, &config->decode}) {
    std::string& folder = role->worker.engine.cache_dir;
    if (folder.empty()) folder = absl::StrCat(HomeFolder(), "/.cache/baton");
  }
  return absl::OkStatus();
}

int RunTune(TuneCommand* tune) {
  absl::Status status = ResolveModel(&tune->model);
  if (status.ok()) {
    EngineOptions& engine = tune->options.rig.engine;
    engine.model = tune->model.path;
    if (engine.cache_dir.empty()) engine.cache_dir = absl::StrCat(HomeFolder(), "/.cache/baton");
    status = RunRelayTuning(tune->options);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<ClusterKey> KeyFromFile(const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        "a single role needs --cluster.key_file, the same file on all machines "
        "(openssl rand -hex 32)");
  }
  ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path, kMaxKeyBytes));
  const absl::string_view word = absl::StripAsciiWhitespace(text);
  auto key = ParseKey({word.data(), word.size()});
  if (!key.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", std::string(key.status().message())));
  }
  return key;
}

// Reads a command line and its file each time anew.
ConfigReload::Source SourceOf(std::vector<std::string> arguments) {
  return [arguments = std::move(arguments)]() -> absl::StatusOr<std::shared_ptr<const Settings>> {
    ASSIGN_OR_RETURN(std::shared_ptr<CommandLine> line, ParseCommandLine(arguments));
    return std::shared_ptr<const Settings>(line, &line->settings);
  };
}

// arguments: of this process; become those of the supervisor, if there is one.
absl::StatusOr<RoleConfig> SingleRole(CommandLine* line, const std::string& role,
                                      std::vector<std::string>* arguments) {
  RoleConfig start;
  if (line->start_descriptor >= 0) {
    ASSIGN_OR_RETURN(const LaunchSpec order, LaunchSpec::Parse(ReadAll(line->start_descriptor)));
    RETURN_IF_ERROR(line->settings.ReadText(order.settings, "start order"));
    start.key = order.key;
    *arguments = order.arguments;
    start.reporter = StartReporter(line->report_descriptor);
  } else {
    RETURN_IF_ERROR(ResolvePaths(&line->config));
    ASSIGN_OR_RETURN(start.key, KeyFromFile(line->config.cluster.key_file));
    if (role != "router" && line->config.cluster.router.empty()) {
      return absl::InvalidArgumentError(
          "a worker needs --cluster.router=HOST:PORT, the control address of each router");
    }
  }
  start.config = line->config;
  std::string& name = start.config.cluster.worker_name;
  if (name.empty()) name = role == "router" ? role : absl::StrCat(role, "-", ::getpid());
  return start;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return 2;
}

LogFormat FormatOf(const Config& config) {
  return config.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
}

int RunRole(CommandLine* line, const std::string& name, std::vector<std::string> arguments) {
  const Config given = line->config;
  auto start = SingleRole(line, name, &arguments);
  if (!start.ok()) return Fail(start.status());
  const bool has_supervisor = start->reporter.has_supervisor();
  ConfigReload reload(has_supervisor ? start->config : given, SourceOf(std::move(arguments)),
                      has_supervisor);
  start->reload = &reload;
  SetLog(LogLevelOf(start->config.log_level), start->config.cluster.worker_name);
  SetLogFormat(FormatOf(start->config));
  QuietGrpc();
  if (name == "router") return RunRouter(*start);
  return RunWorker(*start, name == "prefill" ? Role::kPrefill : Role::kDecode);
}

int Serve(CommandLine* line, const std::vector<std::string>& arguments) {
  ConfigReload reload(line->config, SourceOf(arguments));
  const absl::Status resolved = ResolvePaths(&line->config);
  if (!resolved.ok()) return Fail(resolved);
  const Config& config = line->config;
  // The router reads it again: here for a message that stands alone.
  const auto keys = ReadAccess(config.server.access, config.server.http.host);
  if (!keys.ok()) return Fail(keys.status());
  if (config.decode.workers < 1 || (!config.cluster.colocated && config.prefill.workers < 1)) {
    return Fail(absl::InvalidArgumentError(
        "at least one prefill and one decode worker are needed (--prefill, --decode); or one "
        "worker for both with --colocated --decode 1"));
  }
  if (config.cluster.tls.any()) {
    return Fail(absl::InvalidArgumentError(
        "cluster.tls_cert, cluster.tls_key and cluster.tls_ca are for processes that are started "
        "one by one (baton router, prefill, decode), each with a certificate of its role"));
  }
  const absl::Status files = CheckFiles(config.server.http);
  if (!files.ok()) return Fail(files);
  SetLog(LogLevelOf(config.log_level), "serve");
  SetLogFormat(FormatOf(config));
  SupervisorOptions options;
  options.config = config;
  options.reload = &reload;
  options.arguments = arguments;
  options.is_terminal = ::isatty(STDOUT_FILENO) != 0;
  return RunSupervisor(std::move(options));
}

int Run(CommandLine* line, const std::vector<std::string>& arguments) {
  switch (line->command) {
    case Command::kPrint:
      std::fputs(line->text.c_str(), stdout);
      return 0;
    case Command::kConfig:
      std::fputs(line->settings.Resolved().c_str(), stdout);
      return 0;
    case Command::kServe:
      return Serve(line, arguments);
    case Command::kRouter:
      return RunRole(line, "router", arguments);
    case Command::kPrefill:
      return RunRole(line, "prefill", arguments);
    case Command::kDecode:
      return RunRole(line, "decode", arguments);
    case Command::kDoctor:
      return RunDoctor(line->config, line->doctor);
    case Command::kKey:
      return RunNewKey(line->new_key);
    case Command::kPull:
      return RunPull(line->pull);
    case Command::kQuantize:
      return RunQuantize(line->quantize);
    case Command::kTune:
      return RunTune(&line->tune);
    case Command::kTop:
      return RunTop(line->top);
    case Command::kBench:
      return line->bench();
  }
  return 2;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto line = baton::ParseCommandLine(arguments);
  if (!line.ok()) return baton::Fail(line.status());
  const int status = baton::Run(line->get(), arguments);
  baton::TellLogRepeats();
  return status;
}
