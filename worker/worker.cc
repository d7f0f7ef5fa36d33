#include "worker/worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/cpus.h"
#include "common/log.h"
#include "common/request_limits.h"
#include "engine/load_backend.h"
#include "proto/control_codec.h"
#include "worker/link_rates.h"
#include "worker/pool_view.h"

namespace baton {
namespace {

// Random, and ordered by role: decode workers below both below prefill workers (the order in which
// a prefill takes pages of two pools, docs/SCHEDULING.md).
Incarnation MakeIncarnation(Role role) {
  const uint64_t order = role == Role::kDecode ? 0 : role == Role::kBoth ? 1 : 2;
  return order << 62 | RandomId() >> 2 | 1;
}

int ContextOf(const WorkerOptions& options, const Backend& backend, const KvPool& pool) {
  int64_t context = std::min<int64_t>(backend.model().max_positions, RequestLimits::kContextTokens);
  if (options.engine.max_context > 0)
    context = std::min<int64_t>(context, options.engine.max_context);
  context = std::min<int64_t>(context, int64_t{pool.total()} * pool.layout().page_tokens);
  return static_cast<int>(context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options,
                                                      void (*progress)(void*, double),
                                                      void* progress_context) {
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                   LoadBackend(options.engine, progress, progress_context));
  return Start(options, std::move(backend));
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options,
                                                      std::unique_ptr<Backend> backend) {
  if (options.max_batch < 1 || options.max_batch >= options.engine.max_step_tokens)
    return absl::InvalidArgumentError(
        absl::StrFormat("max_batch is %d; it must be at least 1 and below step_tokens (%d)",
                        options.max_batch, options.engine.max_step_tokens));
  const KvLayout& layout = backend->kv_layout();
  const int64_t pages =
      options.kv_pages > 0 ? options.kv_pages : options.kv_bytes / layout.page_bytes;
  if (pages < 1 || pages > INT32_MAX)
    return absl::InvalidArgumentError(
        absl::StrFormat("KV memory of %d bytes makes %d pages of %d bytes; change kv_memory",
                        options.kv_bytes, pages, layout.page_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool, KvPool::Create(layout, static_cast<int>(pages)));
  std::optional<PrefillCost> first_cost;
  if (options.costs != nullptr) {
    ASSIGN_OR_RETURN(first_cost, CostFor({.model_fingerprint = backend->model_fingerprint(),
                                          .numerics_id = backend->numerics_id(),
                                          .n_layers = backend->model().n_layers,
                                          .threads = options.engine.threads},
                                         *options.costs, options.costs_file));
  }
  std::unique_ptr<Worker> worker(
      new Worker(options, first_cost, std::move(backend), std::move(pool)));
  RETURN_IF_ERROR(worker->Connect(options));
  return worker;
}

Worker::Worker(const WorkerOptions& options, const std::optional<PrefillCost>& first_cost,
               std::unique_ptr<Backend> backend, std::unique_ptr<KvPool> pool)
    : backend_(std::move(backend)), pool_(std::move(pool)) {
  backend_->SetPool(pool_.get());
  announce_.incarnation = options.transfer.incarnation != 0 ? options.transfer.incarnation
                                                            : MakeIncarnation(options.role);
  announce_.name = options.name;
  announce_.role = options.role;
  announce_.model_fingerprint = backend_->model_fingerprint();
  announce_.numerics_id = backend_->numerics_id();
  announce_.layout_id = pool_->layout().layout_id();
  announce_.page_tokens = pool_->layout().page_tokens;
  announce_.pages_total = pool_->total();
  announce_.max_context = ContextOf(options, *backend_, *pool_);
  announce_.max_batch = options.max_batch;
  announce_.max_slice_tokens = options.engine.max_slice_tokens;
  announce_.reuses_kv = options.reuse_kv;
  const CpuAllowance allowance = OwnCpuAllowance();
  announce_.cpu_group = allowance.group();
  announce_.cpu_share = allowance.share(options.engine.threads);
  announce_.link_bytes_per_second = options.link_bytes_per_second;
  announce_.n_layers = backend_->model().n_layers;
  announce_.kv_token_bytes = static_cast<int32_t>(pool_->layout().token_bytes());

  WorkerCoreOptions core;
  core.self = announce_.incarnation;
  core.role = options.role;
  core.max_context = announce_.max_context;
  core.max_batch = options.max_batch;
  core.max_step_tokens = options.engine.max_step_tokens;
  core.mixed_prefill_tokens = options.mixed_prefill_tokens;
  core.chunk_tokens = options.chunk_tokens;
  core.reuse_kv = options.reuse_kv;
  core.first_cost = first_cost;
  core.max_slice_tokens = options.engine.max_slice_tokens;
  core.segment_keys = options.streaming ? kSliceKeys : 0;
  core.cut_through = options.cut_through;
  engine_ = std::make_unique<EngineThread>(
      core, backend_.get(), pool_.get(),
      [this](TransferCommand command) { transfer_->Post(std::move(command)); },
      [this](WorkerReport report) {
        AddLinks(transfer_->links(), &report);
        client_->Send(std::move(report));
      });
}

absl::Status Worker::Connect(const WorkerOptions& options) {
  TransferOptions transfer = options.transfer;
  transfer.incarnation = announce_.incarnation;
  transfer.key = options.key;
  transfer.model_fingerprint = announce_.model_fingerprint;
  transfer.numerics_id = announce_.numerics_id;
  transfer.layout_id = announce_.layout_id;
  const auto on_event = [this](TransferEvent event) { engine_->Post(std::move(event)); };
  ASSIGN_OR_RETURN(transfer_,
                   options.make_link
                       ? Transfer::StartOver(options.make_link, transfer, ViewOf(*pool_), on_event)
                       : Transfer::Start(transfer, ViewOf(*pool_), on_event));
  announce_.transfer = {.incarnation = announce_.incarnation, .address = transfer_->address()};

  ControlClientOptions client;
  client.router_address = options.router_address;
  client.key = options.key;
  client.announce = announce_;
  client.on_event = [this](RouterEvent event) { return engine_->Post(std::move(event)); };
  client_ = std::make_unique<ControlClient>(std::move(client));
  engine_->Start();
  return absl::OkStatus();
}

Worker::~Worker() { Stop(); }

WorkerMetrics Worker::metrics() const {
  WorkerMetrics metrics = engine_->metrics();
  if (transfer_ == nullptr) return metrics;
  metrics.transfer = transfer_->counters();
  metrics.links = transfer_->links();
  return metrics;
}

void Worker::Stop() {
  engine_->Close();
  client_.reset();    // the router sees the stream end and counts everything here as lost
  transfer_.reset();  // its last events, the lent pages among them, are in the mailbox now
  engine_->CollectPages();
}

}  // namespace baton
