#include "server/config/config.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "router/router_options.h"

namespace baton {
namespace {

constexpr int64_t kTiB = int64_t{1} << 40;
constexpr int kMaxCpu = 4095;

void DeclareServer(ServerConfig* server, Settings* settings) {
  DeclareHttpServer(&server->http, settings);
  DeclareAccess(&server->access, settings);
  DeclareApiFront(&server->api, settings);
  DeclareGrpc(&server->grpc, settings);
  settings->Int("server.text_threads", &server->text_threads, 1, 64,
                "threads that parse and tokenize long prompts");
  settings->Int("server.metrics_port", &server->metrics_port, -1, 65535,
                "port of /metrics, /load, /livez and /readyz on server.host where that is not "
                "loopback; 0 picks "
                "one, -1 = on server.port, as on loopback");
  settings->Duration("server.shutdown_timeout", &server->shutdown_timeout, absl::ZeroDuration(),
                     absl::Hours(24), "for running requests after SIGTERM");
}

void DeclareRouterProcess(RouterConfig* router, Settings* settings) {
  settings->Text("router.control", &router->control,
                 "host:port where workers dial, beyond the loopback with cluster.tls_* alone; port "
                 "0 picks; or "
                 "unix:PATH, which serve chooses by itself");
  DeclareRouter(&router->router, settings);
}

void DeclareWorkers(const std::string& section, WorkerConfig* workers, Settings* settings) {
  const auto key = [&](const char* name) { return absl::StrCat(section, ".", name); };
  settings->Int(key("workers"), &workers->workers, 0, 64, "worker processes `serve` starts");
  settings->Text(key("cpus"), &workers->cpus, "CPUs of each worker (0-3,8); empty = shared out");
  settings->Int(
      key("threads"), &workers->threads, 0, 1024,
      "compute threads of a worker; 0 = one per CPU, and all workers together no more than whole "
      "CPUs in the quota of the container");
  settings->Int(key("nice"), &workers->nice, -20, 19, "scheduling priority, higher yields more");
  settings->Int(
      key("spin_us"), &workers->spin_us, -1, 1000,
      "how long a compute thread waits awake for work inside a step; -1 = 50 on CPUs that "
      "no other worker uses, else 0");
  settings->Bytes(key("kv_memory"), &workers->kv_memory, 0, kTiB,
                  "KV cache of a worker; 0 = chosen from model and memory of machine or container");
  DeclareWorker(section, &workers->worker, settings);
  settings->Text("prefill.cost_file", &workers->cost_file,
                 "file of baton tune whose costs are believed before prefill was measured; empty = "
                 "none");
}

void DeclareDevice(DeviceConfig* device, Settings* settings) {
  settings->Text("model.device", &device->name,
                 "where workers compute: cpu; cuda or cuda:INDEX, a Hopper GPU of NVIDIA");
  settings->Number(
      "model.gpu_memory_utilization", &device->memory_share, 0.01, 1,
      "share of a GPU's memory for the workers that are started together, in equal parts");
}

void DeclareCluster(ClusterConfig* cluster, Settings* settings) {
  settings->Bool("cluster.colocated", &cluster->colocated,
                 "every worker does both phases (decode.workers of them)");
  settings->Text(
      "cluster.router", &cluster->router,
      "control addresses of all routers, for a single role: host:port or unix:PATH, with "
      "commas between them; a name stands for all its addresses, now and later");
  settings->Text("cluster.key_file", &cluster->key_file,
                 "file with the cluster key (64 hex digits), for a single role");
  settings->Text("cluster.tls_cert", &cluster->tls.cert,
                 "PEM file of a single role's certificate for control streams, made for the name "
                 "baton://CLUSTER/ROLE; empty = plain text, on the loopback alone");
  settings->Text("cluster.tls_key", &cluster->tls.key,
                 "PEM file of that certificate's key, not open to everybody");
  settings->Text("cluster.tls_ca", &cluster->tls.ca,
                 "PEM file of the authorities that sign the cluster's certificates");
  settings->Text("cluster.worker_host", &cluster->worker_host,
                 "address workers listen on for KV and metrics");
  settings->Text("cluster.worker_name", &cluster->worker_name, "name in logs and metrics");
  settings->Int("cluster.metrics_port", &cluster->metrics_port, 0, 65535,
                "a worker's /metrics, /livez, /readyz; 0 picks one");
}

void DeclareSections(Settings* settings) {
  settings->Section("model", "Which model, in which numbers, on which instruction set.");
  settings->Section("kv", "The KV cache of all workers.");
  settings->Section("server", "The HTTP API, in the router's process.");
  settings->Section("router", "Which workers take a request, and what becomes of it if they fail.");
  settings->Section("prefill", "Workers that compute prompts.");
  settings->Section("decode", "Workers that compute tokens; colocated ones do both.");
  settings->Section("kvtransfer", "How KV travels between workers.");
  settings->Section("cluster", "How the processes of a cluster find each other.");
  settings->Section("tracing", "Where the spans of requests go, and of which.");
  settings->Section("log", "What is written to stderr.");
  settings->Section("lab",
                    "For comparisons and experiments only: each makes Baton slower, or decides "
                    "what it decides better by itself.");
}

// The laboratory had its keys in the sections of the rooms.
void DeclareRenamed(Settings* settings) {
  settings->Renamed("model.attention", "lab.attention");
  settings->Renamed("router.partition", "lab.partition");
  settings->Renamed("router.partition_table", "lab.partition_table");
  settings->Renamed("router.relay_min_ranks", "lab.relay_min_ranks");
  settings->Renamed("router.relay_push", "lab.relay_push");
  settings->Renamed("prefill.streaming", "lab.streaming");
  settings->Renamed("prefill.forwarding", "lab.forwarding");
  settings->Renamed("cluster.link_bytes_per_second", "lab.link_bytes_per_second");
  settings->Renamed("cluster.link_latency", "lab.link_latency");
  settings->Renamed("cluster.link_falls_after", "lab.link_falls_after");
}

}  // namespace

ServerConfig::ServerConfig() {
  http.port = 8000;
  http.limits.max_body = 0;
}

RouterConfig::RouterConfig() {
  router.relay.min_tokens = kShippedRelayMinTokens;
  router.relay.max_ranks = kShippedRelayMaxRanks;
}

Config::Config() {
  prefill.workers = 2;
  prefill.nice = 5;
}

void DeclareSettings(Config* config, Settings* settings) {
  DeclareSections(settings);
  DeclareModel(&config->model, settings);
  DeclareDevice(&config->device, settings);
  DeclareServer(&config->server, settings);
  DeclareRouterProcess(&config->router, settings);
  DeclareWorkers("prefill", &config->prefill, settings);
  DeclareWorkers("decode", &config->decode, settings);
  DeclareCluster(&config->cluster, settings);
  DeclareTracing(&config->tracing, settings);
  DeclareLab(&config->lab, settings);
  settings->Choice("log.level", &config->log_level, {"debug", "info", "warn", "error"},
                   "lowest level written");
  settings->Choice(
      "log.format", &config->log_format, {"text", "json"},
      "of lines of the log; json: an object each, with the ids of requests and traces");
  DeclareRenamed(settings);
}

absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  const auto error = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a CPU list such as 0-3,8 (numbers up to 4095)"));
  };
  for (const auto part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last)) {
      return error();
    }
    if (first < 0 || last < first || last > kMaxCpu) return error();
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t j = i;
    while (j + 1 < cpus.size() && cpus[j + 1] == cpus[j] + 1) ++j;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (j > i) absl::StrAppend(&text, "-", cpus[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace baton
