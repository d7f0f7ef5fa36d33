#include "server/config/config.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kTiB = int64_t{1} << 40;
constexpr int kMaxCpu = 4095;

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
  settings->Int(key("max_batch"), &workers->max_batch, 1, 4096, "sequences decoded at once");
  settings->Int(key("step_tokens"), &workers->step_tokens, 16, 65536, "tokens of one engine step");
  settings->Bool(key("reuse_kv"), &workers->reuse_kv,
                 "prompts reuse KV of earlier ones with the same beginning");
}

void DeclareSlices(SliceConfig* slices, Settings* settings) {
  settings->Int("prefill.max_slice_tokens", &slices->max_slice_tokens, 64, 1 << 20,
                "most tokens of a prompt that a worker computes at once as one of several");
  settings->Choice("lab.streaming", &slices->streaming, {"ordered", "off"},
                   "KV of the workers before is attended to as it comes, or layer by layer");
  settings->Choice("lab.forwarding", &slices->forwarding, {"cut_through", "accumulated"},
                   "KV is passed on as it comes, or when all of a layer is there (KV-Runahead)");
  settings->Text("prefill.cost_file", &slices->cost_file,
                 "file of baton tune whose costs are believed before prefill was measured; empty = "
                 "none");
}

void DeclareServer(ServerConfig* server, Settings* settings) {
  const absl::Duration least = absl::Milliseconds(10), day = absl::Hours(24);
  settings->Text("server.host", &server->host, "address the HTTP API binds");
  settings->Int("server.port", &server->port, 0, 65535, "port of the HTTP API; 0 picks one");
  settings->Text("server.cors_origin", &server->cors_origin,
                 "Access-Control-Allow-Origin; empty = none");
  settings->Bytes("server.max_header", &server->max_header, 1024, kMiB, "bytes of a header block");
  settings->Bytes("server.max_body", &server->max_body, 0, 1024 * kMiB,
                  "bytes of a body; 0 = min(64MiB, 32 B x context), at least 1MiB");
  settings->Int("server.max_connections", &server->max_connections, 1, 1000000,
                "open connections; more are refused with 503");
  settings->Duration("server.header_timeout", &server->header_timeout, least, day,
                     "for a whole header block");
  settings->Duration("server.body_timeout", &server->body_timeout, least, day,
                     "without progress of a body");
  settings->Duration("server.idle_timeout", &server->idle_timeout, least, day,
                     "of an idle connection after a request");
  settings->Duration("server.write_timeout", &server->write_timeout, least, day,
                     "without progress of a response");
  settings->Duration("server.sse_keepalive", &server->sse_keepalive, least, day,
                     "of silence before blank lines are sent in a stream");
  settings->Duration("server.shutdown_timeout", &server->shutdown_timeout, absl::ZeroDuration(),
                     day, "for running requests after SIGTERM");
  settings->Choice("server.half_close", &server->half_close, {"cancel", "finish"},
                   "what a client that closes its sending side wants");
  settings->Bytes("server.max_unsent", &server->max_unsent, 4096, 1024 * kMiB,
                  "response bytes a slow client may leave unread before it is cancelled");
  settings->Int("server.text_threads", &server->text_threads, 1, 64,
                "threads that parse and tokenize long prompts");
  settings->Bytes("server.inline_text", &server->inline_text, 0, kMiB,
                  "bodies up to this size are tokenized on the front thread");
}

void DeclareSections(Settings* settings) {
  settings->Section("model", "Which model, in which numbers, on which instruction set.");
  settings->Section("kv", "The KV cache of all workers.");
  settings->Section("server", "The HTTP API, in the router's process.");
  settings->Section("router", "Which workers take a request, and what becomes of it if they fail.");
  settings->Section("prefill", "Workers that compute prompts.");
  settings->Section("decode", "Workers that compute tokens; colocated ones do both.");
  settings->Section("cluster", "How the processes of a cluster find each other.");
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

void DeclareSettings(Config* config, Settings* settings) {
  DeclareSections(settings);
  ModelConfig& model = config->model;
  settings->Text("model.path", &model.path,
                 "folder, .gguf file, hub id in the local cache (org/name, org/name@revision), or "
                 "random:FILE");
  settings->Text("model.name", &model.name, "model id in the API; empty = name of the folder");
  settings->Text("model.hf_cache", &model.hf_cache,
                 "Hugging Face hub cache; empty = ~/.cache/huggingface/hub");
  settings->Choice("kv.dtype", &model.kv_dtype, {"bf16", "int8"},
                   "type of cached keys and values; int8 has a scale per token and head");
  settings->Choice("model.dtype", &model.dtype, {"auto", "bf16", "int8", "int4", "fp32"},
                   "type of the weights; auto = bf16");
  settings->Int("model.int4_group", &model.int4_group, 32, 128,
                "weights that share a scale with dtype int4: 32, 64, 128");
  settings->Choice("model.isa", &model.isa, {"auto", "avx2", "avx512", "avx512bf16", "amx"},
                   "instruction set of the kernels");
  settings->Choice("lab.attention", &model.attention, {"causal", "dense_mask"},
                   "dense_mask computes what a query does not see and masks it: the same tokens, "
                   "slower, to compare with engines that do so");
  settings->Text("model.weight_cache", &model.weight_cache,
                 "folder of packed weights; empty = ~/.cache/baton");
  settings->Int("model.max_context", &model.max_context, 0, 1 << 24,
                "tokens of prompt and output; 0 = the model's own");
  settings->Int("model.page_tokens", &model.page_tokens, 16, 64, "tokens per KV page: 16, 32, 64");
  settings->Int("model.random_seed", &model.random_seed, 0, INT32_MAX, "of random: weights");

  DeclareServer(&config->server, settings);

  RouterConfig& router = config->router;
  settings->Text("router.control", &router.control, "host:port where workers dial; port 0 picks");
  settings->Int("router.max_waiting", &router.max_waiting, 1, 1000000,
                "requests not ended; beyond it the answer is 429");
  settings->Int("router.max_attempts", &router.max_attempts, 1, 100,
                "attempts in a row that a worker fails before the request fails");
  settings->Int("router.max_lost_attempts", &router.max_lost_attempts, 1, 1000,
                "attempts in a row that lose a worker before the request is taken for the cause");
  settings->Int("router.relay_min_tokens", &router.relay_min_tokens, 0, 1 << 24,
                "prompts from so many tokens on may be prefilled by several workers; 0 = none");
  settings->Int("router.relay_max_ranks", &router.relay_max_ranks, 1, 64,
                "most workers that share a prompt");
  settings->Choice("lab.relay_push", &router.relay_push, {"auto", "all", "tail"},
                   "which workers that share a prompt hand KV to the decode worker: each its own, "
                   "the last all of it, or what is sooner by their links");
  settings->Int("lab.relay_min_ranks", &router.relay_min_ranks, 1, 64,
                "share such prompts among so many where they are there, whatever is predicted");
  settings->Choice("lab.partition", &router.partition, {"closed", "table", "even"},
                   "how their slices are found: from measured costs, from a tuned table, all even");
  settings->Text("lab.partition_table", &router.partition_table,
                 "file of baton tune, for lab.partition: table");
  settings->Duration("router.worker_wait", &router.worker_wait, absl::ZeroDuration(),
                     absl::Hours(1), "a request without any worker left waits before it fails");
  settings->Duration("router.worker_silence", &router.worker_silence, absl::Seconds(2),
                     absl::Hours(1), "without a word of a worker before it counts as lost");

  DeclareWorkers("prefill", &config->prefill, settings);
  DeclareSlices(&config->slices, settings);
  DeclareWorkers("decode", &config->decode, settings);

  ClusterConfig& cluster = config->cluster;
  settings->Bool("cluster.colocated", &cluster.colocated,
                 "every worker does both phases (decode.workers of them)");
  settings->Text("cluster.router", &cluster.router, "router's control address, for a single role");
  settings->Text("cluster.key_file", &cluster.key_file,
                 "file with the cluster key (64 hex digits), for a single role");
  settings->Text("cluster.worker_host", &cluster.worker_host,
                 "address workers listen on for KV and metrics");
  settings->Bytes("lab.link_bytes_per_second", &cluster.link_bytes_per_second, 0, kTiB,
                  "KV links are slowed to this, for experiments; 0 = not at all");
  settings->Duration("lab.link_latency", &cluster.link_latency, absl::ZeroDuration(),
                     absl::Seconds(1), "added to what KV links carry, for experiments");
  settings->Bytes(
      "lab.link_falls_after", &cluster.link_falls_after, 0, kTiB,
      "a worker's KV link carries a hundredth of link_bytes_per_second once so much has "
      "come in over it, for experiments; 0 = never");
  settings->Text("cluster.worker_name", &cluster.worker_name, "name in logs and metrics");
  settings->Int("cluster.metrics_port", &cluster.metrics_port, 0, 65535,
                "a worker's /metrics, /livez, /readyz; 0 picks one");
  settings->Choice("log.level", &config->log_level, {"debug", "info", "warn", "error"},
                   "lowest level written");
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
