#include "worker/worker_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/overloaded.h"
#include "proto/control_codec.h"

namespace baton {
namespace {

template <typename Object, typename Event>
concept Takes = requires(Object& object, Event& event) {
  object.On(event, absl::Time());
};

int LentPerTurn(const WorkerCoreOptions& options, const KvPool& pool) {
  return static_cast<int>(
      std::max<int64_t>(1, options.zeroed_bytes_per_turn / pool.layout().page_bytes));
}

}  // namespace

WorkerCore::WorkerCore(const WorkerCoreOptions& options, const WorkerFacts& facts, Backend* backend,
                       KvPool* pool, WorkerPorts ports)
    : options_(options),
      limits_(backend->limits()),
      backend_(backend),
      pool_(pool),
      ports_(std::move(ports)),
      index_(options.reuse_kv ? std::make_optional<PrefixIndex>(pool, facts.key) : std::nullopt),
      prefill_(options.prefill,
               {.self = facts.self,
                .max_context = facts.max_context,
                .model = &backend->model(),
                .limits = limits_},
               pool, index_ ? &*index_ : nullptr),
      decode_(options.decode, backend->model(), pool, index_ ? &*index_ : nullptr),
      lender_(pool, facts.role == Role::kDecode, LentPerTurn(options, *pool)),
      lines_(index_ ? &index_->log() : nullptr),
      commands_(backend, ports_.transfer),
      steps_(options_, facts, ports_,
             {.backend = backend,
              .prefill = &prefill_,
              .decode = &decode_,
              .lender = &lender_,
              .metrics = &metrics_,
              .take_effects = [this] { TakeEffects(); },
              .send_report = [this] { lines_.Send(ports_.report); }}) {
  BATON_CHECK(facts.self != 0 && facts.max_context > 0);
  // A step with every row still has a place for prefill.
  BATON_CHECK(options.decode.max_batch > 0 && options.decode.max_batch < limits_.max_step_tokens);
  BATON_CHECK(options.itl_stretch >= 1 && options.min_mixed_tokens > 0);
}

// --- events

void WorkerCore::Handle(RouterEvent event) {
  RouterId router = 0;
  const auto handle = Overloaded{
      [this](PrefillRequest& request) { HandleRequest(std::move(request)); },
      [this](DecodeRequest& request) { HandleRequest(std::move(request)); },
      [this](const CancelRequest& request) {
        for (const PartRequest& part : desk_.Cancel(request.request_id, request.epoch)) {
          PartEnded ended = RefusalOf(part, absl::OkStatus(), PartFault::kOwn);
          ended.reason = EndReason::kCancelled;
          RefuseKv(part);
          Report(std::move(ended));
        }
        prefill_.prompts().Cancel(request.request_id, request.epoch);
        decode_.Cancel(request.request_id, request.epoch);
      },
      [&, this](const TellPages&) { lines_.TellPages(router); },
  };
  std::visit(Overloaded{
                 [this](const RouterConnected& connected) { lines_.Connect(connected); },
                 [&](RouterMessages& messages) {
                   router = messages.router;
                   for (RouterMessage& message : messages.messages) std::visit(handle, message);
                 },
                 // If the router lives, it counts all of it as lost and dispatches it elsewhere.
                 [this](const RouterDisconnected& lost) {
                   ++metrics_.routers_lost;
                   CancelAllOf(lost.router);
                 },
             },
             event);
}

// KV for a part that does not begin here may be here, or promised, and a source that has not yet
// connected tells nobody that it gives up: without this its pages would wait for a timeout.
void WorkerCore::RefuseKv(const PartRequest& request) {
  if (const auto* decode = std::get_if<DecodeRequest>(&request)) decode_.Refuse(*decode);
}

// All attempts at a request have its grammar, and jobs end in their order: so do the attempts
// begin.
void WorkerCore::HandleRequest(PartRequest request) {
  const auto refuse = [&](const absl::Status& why, PartFault fault) {
    RefuseKv(request);
    Report(RefusalOf(request, why, fault));
  };
  if (metrics_.load.draining) {
    refuse(absl::UnavailableError("worker is draining"), PartFault::kDraining);
  } else if (GrammarOf(request).kind == GrammarKind::kNone) {
    Begin(std::move(request), nullptr);
  } else if (!ports_.compile) {
    refuse(absl::UnimplementedError(
               "this model has no tokenizer, so its text cannot be kept inside a grammar"),
           PartFault::kGrammar);
  } else if (desk_.is_full()) {
    refuse(absl::ResourceExhaustedError(
               absl::StrFormat("%d requests wait for their grammars", desk_.size())),
           PartFault::kOwn);
  } else {
    ports_.compile(desk_.Add(std::move(request)));
  }
}

void WorkerCore::Handle(GrammarCompiled event) {
  std::optional<PartRequest> request = desk_.Take(event.id);
  if (!request) return;
  if (event.grammar.ok()) return Begin(*std::move(request), *std::move(event.grammar));
  RefuseKv(*request);
  Report(RefusalOf(*request, event.grammar.status(), PartFault::kGrammar));
}

void WorkerCore::Begin(PartRequest request, SharedGrammar grammar) {
  if (auto* prefill = std::get_if<PrefillRequest>(&request))
    prefill_.prompts().Admit(std::move(*prefill), ports_.clock(), std::move(grammar));
  else
    decode_.Expect(std::get<DecodeRequest>(std::move(request)), ports_.clock(), std::move(grammar));
}

// Each event goes to those that have an `On` for its type.
void WorkerCore::Handle(TransferEvent event) {
  if (ports_.event_taken) ports_.event_taken();
  const absl::Time now = ports_.clock();
  const auto offer = [now]<typename Object, typename Event>(Object& to, Event& e) {
    if constexpr (Takes<Object, Event>) to.On(e, now);
  };
  std::visit(
      Overloaded{
          [&](auto& e) { offer(lender_, e), offer(prefill_.prompts(), e), offer(decode_, e); },
          [this](LinksMeasured& e) {
            if (e.links.size() > ControlLimits::kLinks) e.links.resize(ControlLimits::kLinks);
            metrics_.load.links = std::move(e.links);
          },
      },
      event);
}

void WorkerCore::Drain() { metrics_.load.draining = true; }

// Requests of other routers go on.
void WorkerCore::CancelAllOf(RouterId router) {
  lines_.Disconnect(router);
  const int n_ended =
      desk_.CancelAllOf(router) + prefill_.prompts().CancelAll(router) + decode_.CancelAll(router);
  metrics_.parts_orphaned += static_cast<uint64_t>(n_ended);
  commands_.Add(CancelPromises{router});
}

void WorkerCore::Close() {
  metrics_.load.draining = true;
  lines_.DisconnectAll();
  desk_.Clear();
  prefill_.prompts().CancelAll();
  decode_.CancelAll();
  commands_.Add(CancelPromises{});
  if (auto command = lender_.Close()) commands_.Add(*std::move(command));
  TakeEffects();
}

bool WorkerCore::IsQuiet() const {
  return desk_.size() == 0 && prefill_.prompts().queue().size() == 0 &&
         decode_.n_sequences() == 0 && !has_under_way();
}

void WorkerCore::Abandon() {
  BATON_CHECK(!has_under_way());
  prefill_.prompts().Abandon();
  decode_.CancelAll();
  BATON_CHECK(lender_.lent() == 0);
  BATON_CHECK(pool_->held() == 0);
}

// --- a turn

bool WorkerCore::Turn() {
  steps_.Complete();
  if (LooksLost()) return false;
  const absl::Time now = ports_.clock();
  prefill_.prompts().OnTime(now);
  decode_.OnTime(now);
  bool goes_on = false;
  if (steps_.has_room()) {
    const EngineSteps::Step step = steps_.Compose(now, pool_->total());
    TakeEffects();
    LendPages();
    if (step.n_tokens() > 0) steps_.Run(step);
    goes_on = steps_.RunSliceBlock(step) || step.n_tokens() > 0 || lender_.lends_more();
  }
  TakeEffects();
  lines_.ReportLoad(Load(), ports_.clock());
  const bool has_pages_to_tell = lines_.ReportPages();
  lines_.Send(ports_.report);
  AwaitNext();
  return has_pages_to_tell || (goes_on && steps_.has_room());
}

bool WorkerCore::LooksLost() {
  if (is_lost_) return true;
  const std::optional<std::string> why = backend_->lost();
  if (!why) return false;
  is_lost_ = true;
  BATON_CHECK(ports_.lost != nullptr);
  ports_.lost(*why);
  return true;
}

void WorkerCore::AwaitNext() {
  if (!steps_.has_under_way() || steps_.next() == awaited_) return;
  awaited_ = steps_.next();
  backend_->WakeAt(awaited_, ports_.wake);
}

void WorkerCore::LendPages() {
  const double wait_seconds =
      static_cast<double>(decode_.steps_to_first_end()) * steps_.plain_seconds();
  const LenderNeeds needs{.taken_pages = prefill_.prompts().pages().taken(),
                          .wanted_pages = prefill_.prompts().pages().wanted(),
                          .growth_pages = decode_.growth_pages(),
                          .sequence_pages = decode_.expected_pages(),
                          .expected_wait_us = static_cast<int64_t>(1e6 * wait_seconds)};
  // Slices that ended attempts have left make neither rows nor sequences wait.
  const int sequences = lender_.waiting() > 0 ? needs.sequence_pages - lender_.lent() : 0;
  while (pool_->free() < needs.growth_pages + sequences &&
         prefill_.prompts().pages().DiscardOldest()) {
  }
  if (auto command = lender_.Balance(needs)) commands_.Add(*std::move(command));
}

// --- effects and reports

template <typename Core>
void WorkerCore::TakeEffectsOf(Core* core) {
  const auto take = Overloaded{
      [this](TransferCommand& command) {
        if (const auto* held = std::get_if<LendHeld>(&command))
          lender_.CountHeld(static_cast<int>(held->pages.size()));
        commands_.Add(std::move(command));
      },
      [this](WorkerEvent& event) { Report(std::move(event)); },
      [this](HandoffArrived& kept) { decode_.On(kept, ports_.clock()); },
  };
  for (auto& effect : core->TakeEffects()) std::visit(take, effect);
}

void WorkerCore::TakeEffects() {
  TakeEffectsOf(&prefill_);  // first: it may bring sequences to the batch
  TakeEffectsOf(&decode_);
}

void WorkerCore::Report(WorkerEvent event) {
  if (const auto* part = std::get_if<PartEnded>(&event)) {
    ++metrics_.parts_ended;
    metrics_.parts_cancelled += part->reason == EndReason::kCancelled;
    metrics_.parts_failed += part->reason == EndReason::kFailed;
    metrics_.preemptions += part->reason == EndReason::kPreempted;
  }
  lines_.Report(std::move(event));
}

WorkerLoad WorkerCore::Load() const {
  const PromptQueue::Work queued = prefill_.prompts().queue().queued();
  WorkerLoad load = metrics_.load;
  load.prefill_queued_tokens = static_cast<int32_t>(std::min<int64_t>(queued.tokens, INT32_MAX));
  load.prefill_queued_pairs = queued.pairs;
  load.decode_rows = decode_.n_rows();
  load.decode_waiting = decode_.n_waiting();
  load.pages_free = pool_->free() + lender_.unpromised();
  load.prefill_cost = steps_.prefill_meter().cost();
  const double pairs = queued.pairs_of_token();
  const int step_tokens = steps_.prefill_meter().StepTokens(pairs);
  load.prompt_step_seconds = load.prefill_cost.Work(step_tokens, step_tokens * pairs);
  load.fitted_tokens = steps_.prefill_meter().fitted_tokens();
  load.step_cost = steps_.step_meter().cost();
  return load;
}

absl::Time WorkerCore::NextDeadline() const {
  if (is_lost_) return absl::InfiniteFuture();
  return std::min({lines_.LoadDue(), decode_.NextDeadline(), prefill_.prompts().NextDeadline()});
}

WorkerMetrics WorkerCore::metrics() const {
  WorkerMetrics metrics = metrics_;
  metrics.load = Load();
  metrics.routers = lines_.size();
  metrics.prefill_prompts = prefill_.prompts().queue().size();
  metrics.prefill_running = prefill_.prompts().queue().n_running();
  metrics.reused_tokens = static_cast<uint64_t>(prefill_.prompts().pages().reused_tokens());
  metrics.pages_total = pool_->total();
  metrics.pages_free = pool_->free();
  metrics.pages_prefill = prefill_.prompts().pages_held();
  metrics.pages_decode = decode_.pages_held();
  metrics.pages_cached = pool_->cached();
  metrics.pages_shared = pool_->shared();
  metrics.pages_trimmed = pool_->trimmed();
  metrics.pages_lent = lender_.lent();
  metrics.pages_promised = lender_.lent() - lender_.unpromised();
  metrics.handoffs_waiting = lender_.waiting();
  return metrics;
}

}  // namespace baton
