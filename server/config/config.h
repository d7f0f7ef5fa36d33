// Every setting of every room, as one plain struct, and its declaration (key, bounds, help).
// docs: `baton config --keys` prints the list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/settings.h"
#include "common/status.h"
#include "router/relay_defaults.h"

namespace baton {

struct ModelConfig {
  std::string path;      // folder, or random:<config.json>, once resolved
  std::string name;      // id in the API; empty = name of the folder
  std::string hf_cache;  // hub cache folder; empty = ~/.cache/huggingface/hub
  std::string dtype = "auto";
  std::string kv_dtype = "bf16";
  int int4_group = 128;
  std::string isa = "auto";
  std::string attention = "causal";
  std::string weight_cache;  // folder of packed weights; empty = ~/.cache/baton
  int max_context = 0;
  int page_tokens = 64;
  int random_seed = 1;
};

struct ServerConfig {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string cors_origin = "*";
  int64_t max_header = 16 << 10;
  int64_t max_body = 0;  // 0 = min(64 MiB, 32 B x context), at least 1 MiB
  int max_connections = 10000;
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(30);
  absl::Duration idle_timeout = absl::Seconds(620);
  absl::Duration write_timeout = absl::Seconds(30);
  absl::Duration sse_keepalive = absl::Seconds(15);
  absl::Duration shutdown_timeout = absl::Seconds(30);
  std::string half_close = "cancel";
  int64_t max_unsent = 1 << 20;
  int text_threads = 1;
  int64_t inline_text = 4 << 10;
};

struct RouterConfig {
  std::string control = "127.0.0.1:0";  // where workers dial
  int max_waiting = 1024;
  int max_attempts = 4;
  int max_lost_attempts = 8;
  int relay_min_tokens = kShippedRelayMinTokens;  // 0 = no relays
  int relay_max_ranks = kShippedRelayMaxRanks;
  int relay_min_ranks = 1;  // 1 = as many as are predicted to be soonest
  std::string partition = "closed";
  std::string partition_table;      // file
  std::string relay_push = "auto";  // all, tail
  absl::Duration worker_wait = absl::Seconds(30);
  absl::Duration worker_silence = absl::Seconds(3);
};

struct WorkerConfig {
  int workers = 1;
  std::string cpus;  // "0-3,8"; empty = chosen
  int threads = 0;   // 0 = as many as its cpus and the quota
  int nice = 0;
  int spin_us = -1;       // -1 = chosen
  int64_t kv_memory = 0;  // per worker; 0 = chosen
  int max_batch = 64;     // decode rows
  int step_tokens = 512;  // tokens of one step, prefill chunks and decode rows together
  bool reuse_kv = true;   // of earlier prompts with the same beginning
};

// Of prompts that several workers prefill.
struct SliceConfig {
  int max_slice_tokens = 8192;
  std::string streaming = "ordered";       // off
  std::string forwarding = "cut_through";  // accumulated
  std::string cost_file;                   // of baton tune; empty: measured from the first step on
};

struct ClusterConfig {
  bool colocated = false;
  std::string router;    // host:port of the router's control address (single roles)
  std::string key_file;  // 32 bytes as hex (single roles)
  std::string worker_host = "127.0.0.1";  // where workers listen for KV and metrics
  std::string worker_name;                // "prefill0"; empty = role and process id
  int metrics_port = 0;
  // Of an emulated link, for experiments: each worker's port, each direction.
  int64_t link_bytes_per_second = 0;  // 0 = as fast as the link is
  absl::Duration link_latency = absl::ZeroDuration();
  int64_t link_falls_after = 0;  // bytes that come in, then it carries a hundredth; 0 = never
};

struct Config {
  ModelConfig model;
  ServerConfig server;
  RouterConfig router;
  WorkerConfig prefill, decode;
  SliceConfig slices;
  ClusterConfig cluster;
  std::string log_level = "info";

  Config() {
    prefill.workers = 2;
    prefill.nice = 5;
  }
};

void DeclareSettings(Config* config, Settings* settings);

// Numbers of a CPU list such as "0-3,8", ascending. InvalidArgument names the text.
absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text);
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace baton
