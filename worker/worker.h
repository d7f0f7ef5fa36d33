// One worker process without its main(): engine with its pool, transfer and the lines to routers,
// each on threads of its own. Every worker can run both phases; its role says which one it prefers.
// One thread calls Start and Stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "engine/kv/kv_pool.h"
#include "engine/step/backend.h"
#include "kvtransfer/transfer.h"
#include "proto/router_streams.h"
#include "worker/engine_thread.h"
#include "worker/worker_metrics.h"
#include "worker/worker_options.h"

namespace baton {

class Worker {
 public:
  // Starts all threads around a loaded engine; of options.engine only threads and max_context
  // count. Routers that are not there yet are dialled until they are. InvalidArgument: max_batch
  // does not fit the step, or kv_bytes the pool. Other errors are those of KvPool::Create, CostFor
  // and Transfer::Start, or StartOver with make_link.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options,
                                                       const WorkerStart& start,
                                                       std::unique_ptr<Backend> backend);
  ~Worker();  // calls Stop
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The announcement made to the router: pages, context, addresses.
  const WorkerAnnounce& announce() const { return announce_; }
  const Backend& backend() const { return *backend_; }
  WorkerMetrics metrics() const;  // any thread, but not while Stop runs

  // Refuses new requests; running ones go on to their end. Any thread. `drained` is called once,
  // when nothing runs here any more, on the engine thread: it must only post.
  void Drain(std::function<void()> drained) { engine_->Drain(std::move(drained)); }
  // Cancels everything, joins all threads; every page is back in the pool afterwards (CHECKed). Not
  // once WorkerStart::lost was called: what is under way never ends.
  void Stop();

 private:
  Worker(const WorkerOptions& options, const WorkerStart& start,
         const std::optional<PrefillCost>& first_cost, std::unique_ptr<Backend> backend,
         std::unique_ptr<KvPool> pool);
  void TellLost(const std::string& why);  // any thread
  absl::Status Connect(const TransferOptions& options, const WorkerStart& start);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvPool> pool_;
  const WorkerStart::TellsWhy lost_;
  std::atomic<bool> is_lost_ = false;
  WorkerAnnounce announce_;
  std::unique_ptr<EngineThread> engine_;
  std::unique_ptr<Transfer> transfer_;
  std::unique_ptr<RouterStreams> routers_;
};

}  // namespace baton
