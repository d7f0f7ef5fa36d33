#include <catch2/catch.hpp>

#include "tests/e2e/in_process_cluster.h"

#include "absl/strings/str_format.h"
#include "engine/load_backend.h"
#include "kvtransfer/links/ucx_link.h"
#include "tests/support/tapped_link.h"
#include "tests/support/withheld_acks.h"

namespace baton {
namespace {

absl::StatusOr<std::unique_ptr<Link>> MakeUcxLinkWithoutAcks() {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeUcxLink("127.0.0.1"));
  auto tapped = std::make_unique<TappedLink>(std::move(link));
  WithholdAcks(tapped.get());
  return tapped;
}

}  // namespace

InProcessCluster::InProcessCluster(const InProcessOptions& options) {
  const ClusterKey key{1, 2, 3};
  RouterOptions router_options;
  router_options.local = options.local;
  router_options.relay.min_tokens = options.relay_min_tokens;
  router_options.relay.max_ranks = router_options.relay.min_ranks = options.relay_max_ranks;
  for (int i = 0; i < options.routers; ++i)
    routers_.push_back(std::make_unique<InProcessRouter>(router_options, key));

  const int n =
      options.colocated ? options.decode_workers : options.prefill_workers + options.decode_workers;
  for (int i = 0; i < n; ++i) {
    const bool is_prefill = !options.colocated && i < options.prefill_workers;
    WorkerOptions worker;
    worker.engine = options.engine;
    worker.core.decode.max_batch = options.max_batch;
    worker.core.prefill.chunk_tokens = options.chunk_tokens;
    WorkerStart start;
    start.role = options.colocated ? Role::kBoth : is_prefill ? Role::kPrefill : Role::kDecode;
    start.name = absl::StrFormat("%s%d", is_prefill ? "prefill" : "decode", i);
    for (const auto& router : routers_) start.routers.push_back(router->address());
    start.key = key;
    start.compile_grammar = options.compile_grammar;
    if (options.withhold_acks) start.make_link = MakeUcxLinkWithoutAcks;
    start.kv_pages =
        options.kv_pages > 0 ? options.kv_pages : 8 * 4096 / options.engine.page_tokens;
    auto backend = LoadBackend(worker.engine);
    INFO(backend.status().ToString());
    REQUIRE(backend.ok());
    if (options.device.is_emulated) {
      const int64_t kv_bytes = start.kv_pages * (*backend)->kv_layout().page_bytes;
      auto device = EmulatedEngine::Create(*std::move(backend), options.device, kv_bytes);
      INFO(device.status().ToString());
      REQUIRE(device.ok());
      devices_.push_back(*std::move(device));
      devices_.back()->AddTo(&start);
      backend = devices_.back()->TakeBackend();
      if (options.wrap_copier)
        start.make_copier = [make = start.make_copier, wrap = options.wrap_copier](
                                const PoolView& pool, std::function<void()> wake,
                                WorkerStart::TellsWhy lost) {
          return wrap(make(pool, std::move(wake), std::move(lost)));
        };
    }
    auto made = Worker::Start(worker, start, *std::move(backend));
    INFO(made.status().ToString());
    REQUIRE(made.ok());
    workers_.push_back(std::move(*made));
  }
  for (const auto& router : routers_)
    router->AwaitWorkers(n, options.colocated ? n : options.decode_workers);
}

InProcessCluster::~InProcessCluster() { Stop(); }

void InProcessCluster::StopWorker(int i) {
  if (workers_[i] == nullptr) return;
  workers_[i]->Stop();
  if (!devices_.empty()) devices_[i]->WorkerStopped();
  workers_[i].reset();
}

int64_t InProcessCluster::findings() const {
  int64_t sum = 0;
  for (const auto& device : devices_) sum += device->findings();
  return sum;
}

void InProcessCluster::Stop() {
  for (int i = 0; i < n_workers(); ++i) StopWorker(i);
  workers_.clear();
  StopRouter();
}

void InProcessCluster::StopRouter() {
  for (auto& router : routers_) router->Stop();
}

std::vector<Outcome> InProcessCluster::RunAll(const std::vector<GenerateRequest>& requests) {
  std::vector<RequestId> ids;
  for (const GenerateRequest& request : requests) ids.push_back(Submit(request));
  std::vector<Outcome> outcomes;
  for (const RequestId id : ids) outcomes.push_back(WaitEnd(id));
  return outcomes;
}

}  // namespace baton
