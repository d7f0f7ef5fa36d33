// Stands in for `baton router|prefill|decode` under the supervisor's test: reads its order, reports
// what a role reports, and ends as told by the model's name.
//   baton ROLE --start-descriptor N --report-descriptor M
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "server/process/launch_spec.h"

int main(int argc, char** argv) {
  if (argc != 6) return 3;
  for (const auto& [name, value] :
       {std::pair("UCX_MEM_EVENTS", "n"), std::pair("UCX_HANDLE_ERRORS", "none")}) {
    const char* given = std::getenv(name);
    if (given == nullptr || std::strcmp(given, value) != 0) return 6;
  }
  const std::string role = argv[1];
  std::string text;
  char chunk[4096];
  for (ssize_t n = 0; (n = ::read(std::atoi(argv[3]), chunk, sizeof chunk)) > 0;) {
    text.append(chunk, static_cast<size_t>(n));
  }
  const auto order = baton::LaunchSpec::Parse(text);
  if (!order.ok()) return 4;
  const auto has = [&](const char* word) {
    return order->settings.find(word) != std::string::npos;
  };
  if (role != "router" && has("name: \"fails\"")) return 2;
  if (role == "prefill" && has("name: \"dies\"")) ::raise(SIGKILL);
  sigset_t go_on;
  sigemptyset(&go_on);
  sigaddset(&go_on, SIGUSR1);
  if (has("name: \"slow\"")) sigprocmask(SIG_BLOCK, &go_on, nullptr);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  const baton::StartReporter reporter(std::atoi(argv[5]));
  if (role == "router") {
    reporter.ReportPort(baton::StartReport::Kind::kControlPort, 4321);
    reporter.ReportPort(baton::StartReport::Kind::kHttpPort, 8765);
  } else {
    // Workers must know the address of the router.
    const bool is_tcp = has("name: \"tcp\"");
    if (!has(is_tcp ? "router: \"127.0.0.1:4321\"" : "router: \"unix:/tmp/baton-")) return 5;
    // The order must contain the worker's CPUs; no choice is left to the worker.
    if (has(" threads: 0") || has("spin_us: -1")) return 7;
    reporter.ReportProgress(0.5);
    baton::StartReport kv;
    kv.kind = baton::StartReport::Kind::kKvCache;
    kv.kv_bytes = 1 << 20;
    kv.kv_pages = 16;
    kv.kv_tokens = 1024;
    kv.max_context = 512;
    reporter.Report(kv);
  }
  int signal = 0;
  if (role == "router" && has("name: \"slow\"")) sigwait(&go_on, &signal);
  // A router is ready when its workers are ready, which never happens here.
  const bool waits = has("name: \"fails\"") || has("name: \"dies\"");
  if (!(role == "router" && waits)) reporter.Report({});
  if (has("name: \"deaf\"")) pause();
  sigwait(&stop, &signal);
  return 0;
}
