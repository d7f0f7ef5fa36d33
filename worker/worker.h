// One worker process without its main(): engine, pool, transfer and the line to the router, each on
// its thread. Every worker can run both phases; its role says what it prefers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "kvtransfer/transfer.h"
#include "planner/partition_table.h"
#include "proto/control_client.h"
#include "worker/engine_thread.h"
#include "worker/worker_metrics.h"

namespace baton {

struct WorkerOptions {
  std::string name;  // "prefill0": logs and metrics
  Role role = Role::kBoth;
  EngineOptions engine;
  // incarnation (0 = a random one), key, fingerprint and ids are filled in by Start.
  TransferOptions transfer;
  LinkMaker make_link;  // of the KV transfer; empty: UCX at transfer.listen_host, listen_port
  // That the link is held to, told to the router; 0: as fast as it is.
  double link_bytes_per_second = 0;
  std::string router_address;  // host:port of the router's control address
  ClusterKey key{};
  int64_t kv_bytes = 1 << 30;  // size of the KV pool
  int kv_pages = 0;            // not 0: pages instead of bytes
  int max_batch = 64;
  int chunk_tokens = 0;
  int mixed_prefill_tokens = 64;
  bool reuse_kv = true;
  bool streaming = true;    // slices meet their inflow's keys as they come
  bool cut_through = true;  // heads pass on KV as it comes
  // Table of `baton tune` with costs of prefill until they are measured; may be null.
  std::shared_ptr<const PartitionTable> costs{};
  std::string costs_file;  // the table's file, for errors
};

class Worker {
 public:
  // Loads the model (progress as in LoadBackend, on this thread), then starts all threads. A router
  // that is not there yet is dialled until it is.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options,
                                                       void (*progress)(void*, double) = nullptr,
                                                       void* progress_context = nullptr);
  // The same around a loaded engine.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options,
                                                       std::unique_ptr<Backend> backend);
  ~Worker();  // Stop
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What the worker announced to the router: pages, context, addresses.
  const WorkerAnnounce& announce() const { return announce_; }
  const Backend& backend() const { return *backend_; }
  WorkerMetrics metrics() const;  // any thread; not beside Stop

  // Takes nothing new; what runs goes on to its end. Any thread. `drained` is called once, when
  // nothing runs here any more, on the engine thread: it must only post.
  void Drain(std::function<void()> drained = nullptr) { engine_->Drain(std::move(drained)); }
  // True once nothing runs here after Drain (its own or the router's); false after `timeout`.
  bool WaitDrained(absl::Duration timeout) { return engine_->WaitDrained(timeout); }
  // Cancels everything, joins all threads; every page is back in the pool afterwards (CHECKed).
  void Stop();

 private:
  Worker(const WorkerOptions& options, const std::optional<PrefillCost>& first_cost,
         std::unique_ptr<Backend> backend, std::unique_ptr<KvPool> pool);
  absl::Status Connect(const WorkerOptions& options);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  WorkerAnnounce announce_;
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<ControlClient> client_;
};

}  // namespace baton
