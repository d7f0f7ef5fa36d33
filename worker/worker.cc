#include "worker/worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "common/request_limits.h"
#include "worker/announce.h"
#include "worker/request_stamps.h"

namespace baton {
namespace {

int ContextOf(const WorkerOptions& options, const Backend& backend, const KvPool& pool) {
  int64_t context = std::min<int64_t>(backend.model().max_positions, RequestLimits::kContextTokens);
  if (options.engine.max_context > 0)
    context = std::min<int64_t>(context, options.engine.max_context);
  context = std::min<int64_t>(context, int64_t{pool.total()} * pool.layout().page_tokens);
  return static_cast<int>(context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options,
                                                      const WorkerStart& start,
                                                      std::unique_ptr<Backend> backend) {
  const int max_batch = options.core.decode.max_batch;
  const int step_tokens = backend->limits().max_step_tokens;
  if (max_batch < 1 || max_batch >= step_tokens)
    return absl::InvalidArgumentError(
        absl::StrFormat("max_batch is %d; it must be at least 1 and below step_tokens (%d)",
                        max_batch, step_tokens));
  const KvLayout& layout = backend->kv_layout();
  const int64_t pages = start.kv_pages > 0 ? start.kv_pages : start.kv_bytes / layout.page_bytes;
  if (pages < 1 || pages > INT32_MAX)
    return absl::InvalidArgumentError(
        absl::StrFormat("KV memory of %d bytes makes %d pages of %d bytes; change kv_memory",
                        start.kv_bytes, pages, layout.page_bytes));
  const auto new_arena = [&](int64_t bytes) { return backend->NewArena(bytes); };
  ASSIGN_OR_RETURN(std::unique_ptr<KvPool> pool,
                   KvPool::Create(layout, static_cast<int>(pages), new_arena));
  std::optional<PrefillCost> first_cost;
  if (start.costs != nullptr) {
    ASSIGN_OR_RETURN(first_cost, CostFor({.model_fingerprint = backend->model_fingerprint(),
                                          .numerics_id = backend->numerics_id(),
                                          .n_layers = backend->model().n_layers,
                                          .threads = options.engine.threads},
                                         *start.costs, start.costs_file));
  }
  std::unique_ptr<Worker> worker(
      new Worker(options, start, first_cost, std::move(backend), std::move(pool)));
  RETURN_IF_ERROR(worker->Connect(options.transfer, start));
  return worker;
}

Worker::Worker(const WorkerOptions& options, const WorkerStart& start,
               const std::optional<PrefillCost>& first_cost, std::unique_ptr<Backend> backend,
               std::unique_ptr<KvPool> pool)
    : backend_(std::move(backend)), pool_(std::move(pool)), lost_(start.lost) {
  backend_->SetPages(pool_->pages());
  const WorkerFacts facts{.self = MakeIncarnation(start.role, RandomId()),
                          .role = start.role,
                          .max_context = ContextOf(options, *backend_, *pool_),
                          .first_cost = first_cost,
                          .key = start.key};
  announce_ = AnnounceOf(facts, options.core, *backend_, *pool_);
  announce_.name = start.name;
  const CpuAllowance allowance = OwnCpuAllowance();
  announce_.cpu_group = allowance.group();
  announce_.cpu_share = allowance.share(options.engine.threads);
  announce_.link_bytes_per_second = start.link_bytes_per_second;
  engine_ = std::make_unique<EngineThread>(
      options.core, facts, backend_.get(), pool_.get(),
      WorkerPorts{.transfer =
                      [this, filter = start.filter](TransferCommand command) {
                        const auto post = [this](TransferCommand to_room) {
                          transfer_->Post(std::move(to_room));
                        };
                        if (filter == nullptr) return post(std::move(command));
                        filter->OnCommand(std::move(command), post);
                      },
                  .report =
                      [this](uint64_t stream, WorkerReport report) {
                        StampReport(&report, MonotonicNow());
                        routers_->Send(stream, report);
                      },
                  .event_taken = start.event_taken,
                  .lost = [this](const std::string& why) { TellLost(why); }},
      start.compile_grammar);
}

absl::Status Worker::Connect(const TransferOptions& options, const WorkerStart& start) {
  const TransferFacts facts = TransferFactsOf(announce_, start.key);
  const auto on_event = [this, filter = start.filter,
                         sent = start.event_sent](TransferEvent event) {
    if (filter != nullptr) filter->OnEvent(event);
    if (sent != nullptr) sent();
    engine_->Post(std::move(event));
  };
  const PoolView pool = ViewOf(*pool_);
  CopierMaker make_copier;
  if (start.make_copier)
    make_copier = [this, pool, make = start.make_copier](std::function<void()> wake) {
      return make(pool, std::move(wake), [this](const std::string& why) { TellLost(why); });
    };
  ASSIGN_OR_RETURN(transfer_,
                   start.make_link
                       ? Transfer::StartOver(start.make_link, options, facts, pool, on_event,
                                             std::move(make_copier))
                       : Transfer::Start(options, facts, pool, on_event, std::move(make_copier)));
  announce_.transfer = {.incarnation = announce_.incarnation, .address = transfer_->address()};

  RouterStreamsOptions routers;
  routers.addresses = start.routers;
  ControlClientOptions& client = routers.client;
  client.key = start.key;
  client.certificate = start.certificate;
  client.announce = announce_;
  client.engine_turn = [this] { return engine_->turn(); };
  client.on_event = [this](RouterEvent event) {
    StampArrival(&event, MonotonicNow());
    return engine_->Post(std::move(event));
  };
  routers_ = std::make_unique<RouterStreams>(std::move(routers));
  engine_->Start();
  return absl::OkStatus();
}

Worker::~Worker() { Stop(); }

void Worker::TellLost(const std::string& why) {
  BATON_CHECK(lost_ != nullptr);
  if (!is_lost_.exchange(true)) lost_(why);
}

WorkerMetrics Worker::metrics() const {
  WorkerMetrics metrics = engine_->metrics();
  if (transfer_ == nullptr) return metrics;
  metrics.transfer = transfer_->counters();
  metrics.links = transfer_->links();
  return metrics;
}

void Worker::Stop() {
  engine_->Close();
  routers_.reset();   // they see their streams end and count everything here as lost
  transfer_.reset();  // its last events, the lent pages among them, are in the mailbox now
  engine_->CollectPages();
}

}  // namespace baton
