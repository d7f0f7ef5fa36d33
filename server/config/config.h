// The configuration of every process: the options struct of each room, nested, and what the
// processes themselves are told. A room declares its settings beside its struct; this room
// composes them. docs/CONFIG.md is the list (`baton config --markdown`). Plain data, set at the
// start of the process by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/settings.h"
#include "common/status.h"
#include "lab/lab_config.h"
#include "proto/cluster_certificate.h"
#include "router/router_options.h"
#include "server/access/access_options.h"
#include "server/api/api_front_options.h"
#include "server/api/model_config.h"
#include "server/grpc/grpc_options.h"
#include "server/http/http_server_options.h"
#include "server/tracing/tracing_options.h"
#include "worker/worker_options.h"

namespace baton {

// The router's process: HTTP in front.
struct ServerConfig {
  HttpServerOptions http;  // limits.max_body 0 = min(64 MiB, 32 B x context), at least 1 MiB
  AccessOptions access;
  ApiFrontOptions api;
  GrpcOptions grpc;         // but for port and tls, the values of `http` hold
  int metrics_port = 9464;  // of /metrics where `host` is public; 0: picked, -1: the API's
  int text_threads = 1;     // of the TextPool
  absl::Duration shutdown_timeout = absl::Seconds(30);  // of every process

  ServerConfig();
};

struct RouterConfig {
  std::string control = "127.0.0.1:0";  // host:port where workers dial; port 0: picked
  RouterOptions router;

  RouterConfig();
};

// The worker processes of one role. What is chosen at start from these wishes (threads, spinning,
// bytes of KV) stands in `worker` and in WorkerStart.
struct WorkerConfig {
  int workers = 1;
  std::string cpus;       // of each worker: "0-3,8"; empty = chosen
  int threads = 0;        // compute threads of each worker; 0 = as many as its cpus and the quota
  int nice = 0;           // scheduling priority, -20 to 19; higher yields more
  int spin_us = -1;       // microseconds that a compute thread waits awake; -1 = chosen
  int64_t kv_memory = 0;  // bytes per worker; 0 = chosen
  std::string cost_file;  // of baton tune; empty: measured from the first step on
  WorkerOptions worker;
};

// Where workers compute.
struct DeviceConfig {
  std::string name = "cpu";  // or cuda, cuda:INDEX
  // Share of a GPU's memory for the workers of one start: weights, KV and all else.
  double memory_share = 0.9;
};

struct ClusterConfig {
  bool colocated = false;
  std::string router;    // host:port of the router's control address (single roles)
  std::string key_file;  // 32 bytes as hex (single roles)
  ClusterTlsFiles tls;   // of control streams (single roles); none: plain text, on the loopback
  std::string worker_host = "127.0.0.1";  // where workers listen for KV and metrics
  std::string worker_name;                // "prefill0"; empty = role and process id
  int metrics_port = 0;                   // of a worker's /metrics; 0: picked
};

struct Config {
  ModelConfig model;
  ServerConfig server;
  RouterConfig router;
  WorkerConfig prefill, decode;
  ClusterConfig cluster;
  DeviceConfig device;
  TracingOptions tracing;
  LabConfig lab;
  std::string log_level = "info";
  std::string log_format = "text";

  Config();
};

// Declares the settings of all rooms; `config` must outlive `settings`.
void DeclareSettings(Config* config, Settings* settings);

// Numbers of a CPU list such as "0-3,8", ascending, each once; none for an empty text.
// InvalidArgument names the text.
absl::StatusOr<std::vector<int>> ParseCpuList(const std::string& text);
// Returns the list that ParseCpuList reads back. cpus: ascending.
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace baton
