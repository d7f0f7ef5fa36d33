#include "worker/worker_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/overloaded.h"
#include "proto/control_codec.h"

namespace baton {
namespace {

// Counts a prompt token that is scored beside decode rows: the token needs the LM head too, which
// takes about as long as the layers where these are small.
constexpr int kScoredCost = 2;

template <typename Object, typename Event>
concept Takes = requires(Object& object, Event& event) {
  object.On(event, absl::Time());
};

// Expected of a computation whose kind has not been measured yet; and of a process's first ones,
// which may wait for their weights to come from the disk.
constexpr double kUnmeasuredSeconds = 10;

int LentPerTurn(const WorkerCoreOptions& options, const KvPool& pool) {
  return static_cast<int>(
      std::max<int64_t>(1, options.zeroed_bytes_per_turn / pool.layout().page_bytes));
}

// Pairs of queries and keys of a step's pieces from this one on.
double PairsOf(const StepBatch& batch, int first_piece) {
  double pairs = 0;
  for (int piece = first_piece; piece < batch.n_pieces(); ++piece) {
    const int begin = batch.piece_begin[piece];
    pairs += CausalPairs(batch.piece_begin[piece + 1] - begin, batch.positions[begin]);
  }
  return pairs;
}

// Keys that the rows read, which are all pieces yet.
double KeysOf(const StepBatch& rows) {
  double keys = 0;
  for (const int32_t position : rows.positions) keys += position + 1;
  return keys;
}

// Returns what a step should take at most: rows that read so many keys, and prompt tokens beside
// them, scored or not. The cost of prompts is that of full steps, and a short one may take as long.
double StepSeconds(const StepCost& step, const PrefillCost& prefill, const StepBatch& batch,
                   int n_rows, double keys, int full_step) {
  const bool has_prompts = batch.n_tokens() > n_rows;
  if ((n_rows > 0 && !step.is_known()) || (has_prompts && !prefill.is_known()))
    return kUnmeasuredSeconds;
  double prompts = has_prompts ? prefill.Work(full_step, PairsOf(batch, n_rows)) : 0;
  if (!batch.scored_rows.empty()) prompts *= kScoredCost;
  return n_rows > 0 ? step.Seconds(n_rows, keys) + step.beside * prompts : prompts;
}

// KV for a part that does not begin here may be promised already, and a source that has not yet
// connected tells nobody that it gives up: without this its pages would wait for idle_timeout.
void CancelKv(const PartRequest& request, const WorkerPorts& ports) {
  if (const auto* decode = std::get_if<DecodeRequest>(&request))
    ports.transfer(CancelHandoff{.ticket_id = decode->ticket_id, .epoch = decode->epoch});
}

}  // namespace

WorkerCore::WorkerCore(const WorkerCoreOptions& options, const WorkerFacts& facts, Backend* backend,
                       KvPool* pool, WorkerPorts ports)
    : options_(options),
      limits_(backend->limits()),
      max_context_(facts.max_context),
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
      sampler_(backend->compute_pool()),
      lines_(index_ ? &index_->log() : nullptr),
      prefill_meter_(ShapeOfCost(pool->layout()),
                     {.time = options.prompt_step.time,
                      .min_tokens = options.prompt_step.min_tokens,
                      .max_tokens = limits_.max_step_tokens},
                     PairShareOf(backend->model()), facts.first_cost) {
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
          CancelKv(part, ports_);
          Report(std::move(ended));
        }
        prefill_.prompts().Cancel(request.request_id, request.epoch);
        decode_.Cancel(request.request_id, request.epoch);
      },
      [&, this](const TellPages&) { lines_.TellPages(router); },
  };
  std::visit(Overloaded{
                 [this](const RouterConnected& connected) { lines_.Connect(connected.router); },
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

// All attempts at a request have its grammar, and jobs end in their order: so do the attempts
// begin.
void WorkerCore::HandleRequest(PartRequest request) {
  const auto refuse = [&](const absl::Status& why, PartFault fault) {
    CancelKv(request, ports_);
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
  CancelKv(*request, ports_);
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
  ports_.transfer(CancelPromises{router});
}

void WorkerCore::Close() {
  metrics_.load.draining = true;
  lines_.DisconnectAll();
  desk_.Clear();
  prefill_.prompts().CancelAll();
  decode_.CancelAll();
  ports_.transfer(CancelPromises{});
  if (auto command = lender_.Close()) ports_.transfer(*std::move(command));
  TakeEffects();
}

bool WorkerCore::IsQuiet() const {
  return desk_.size() == 0 && prefill_.prompts().queue().size() == 0 && decode_.n_sequences() == 0;
}

void WorkerCore::Abandon() {
  prefill_.prompts().Abandon();
  decode_.CancelAll();
  BATON_CHECK(lender_.lent() == 0);
  BATON_CHECK(pool_->held() == 0);
}

// --- a turn

bool WorkerCore::Turn() {
  const absl::Time now = ports_.clock();
  prefill_.prompts().OnTime(now);
  decode_.OnTime(now);
  const Step step = ComposeStep(now);
  TakeEffects();
  LendPages();
  const bool has_step = step.n_rows + step.n_prefill > 0;
  if (has_step) RunStep(step);
  const bool has_block = RunSliceBlock(step);
  lines_.ReportLoad(Load(), ports_.clock());
  const bool has_pages_to_tell = lines_.ReportPages();
  lines_.Send(ports_.report);
  return has_step || has_block || has_pages_to_tell || lender_.lends_more();
}

WorkerCore::Step WorkerCore::ComposeStep(absl::Time now) {
  builder_.Clear();
  Step step;
  step.n_rows = decode_.Contribute(now, lender_.reclaimable(), &builder_);
  step.keys = KeysOf(builder_.batch());
  step.budget = PromptTokens(step.n_rows, step.keys);
  const int kept = lender_.sequences_first() ? pool_->total() : decode_.growth_pages();
  PromptShare share{.tokens = step.budget};
  if (step.n_rows > 0) {
    share.scored_cost = kScoredCost;
  } else {
    share.enough = options_.prompt_step.enough_tokens;
    share.while_asking = options_.prompt_step.asking_tokens;
  }
  step.n_prefill = prefill_.Contribute(share, kept, now, &builder_);
  if (builder_.n_tokens() > 0) backend_->Begin(builder_.batch());
  return step;
}

void WorkerCore::LendPages() {
  const double wait_seconds = static_cast<double>(decode_.steps_to_first_end()) * plain_seconds_;
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
  if (auto command = lender_.Balance(needs)) ports_.transfer(*std::move(command));
}

void WorkerCore::RunStep(const Step& step) {
  const int n_layers = backend_->model().n_layers;
  const int64_t layer_bytes = prefill_.AnnouncedBytesPerLayer();
  const int64_t layers = layer_bytes == 0 ? n_layers : options_.announce_bytes / layer_bytes;
  const int layers_at_once = static_cast<int>(std::clamp<int64_t>(layers, 1, n_layers));
  const absl::Time start = ports_.clock();
  if (ports_.expect) {
    const double seconds = StepSeconds(step_meter_.cost(), prefill_meter_.cost(), builder_.batch(),
                                       step.n_rows, step.keys, limits_.max_step_tokens);
    ports_.expect(absl::Seconds(metrics_.steps == 0 ? kUnmeasuredSeconds : seconds));
  }
  if (ports_.masks != nullptr) ports_.masks->Start(decode_.unmasked());
  for (int from = 0; from < n_layers; from += layers_at_once) {
    const int to = std::min(from + layers_at_once, n_layers);
    backend_->RunLayers(from, to);
    prefill_.LayersDone(to);
    TakeEffectsOf(&prefill_);
  }
  FinishMasks();
  const absl::Time end = ports_.clock();
  decode_.StepDone(*backend_, &sampler_, end);
  if (!builder_.batch().scored_rows.empty()) {  // the rows' tokens do not wait for that
    TakeEffects();
    lines_.Send(ports_.report);
  }
  prefill_.StepDone(backend_, &sampler_, end);
  TakeEffects();
  Measure(step, end - start, ports_.clock() - start);
}

void WorkerCore::FinishMasks() {
  if (ports_.masks != nullptr) return ports_.masks->Wait();
  for (SequenceSampling* sequence : decode_.unmasked()) sequence->MakeMask();
}

// Prompt tokens of a step with rows that read so many keys: as many as make it itl_stretch times as
// long. What their attention costs is taken to be that of the queue's tokens on average: more than
// it is at the beginning of a prompt, and what it is at the end.
int WorkerCore::PromptTokens(int n_rows, double keys) const {
  const double pairs = prefill_.prompts().queue().queued().pairs_of_token();
  if (n_rows == 0) return prefill_meter_.StepTokens(pairs);
  const int max_tokens = limits_.max_step_tokens - n_rows;
  const StepCost& step = step_meter_.cost();
  const double of_token = step.beside * prefill_meter_.cost().Work(1, pairs);
  const double seconds = (options_.itl_stretch - 1) * step.Seconds(n_rows, keys);
  const double tokens = of_token > 0 ? std::min<double>(seconds / of_token, max_tokens) : 0;
  return std::min(max_tokens, std::max(options_.min_mixed_tokens, static_cast<int>(tokens)));
}

// False: there is no slice, or it waits.
bool WorkerCore::RunSliceBlock(const Step& step) {
  if (!prefill_.has_slice()) {
    slice_waits_since_ = absl::InfiniteFuture();
    return false;
  }
  // Rows in one layer cost a layer's share of as many prompt tokens, and rows of the batch wait for
  // no more of these than beside chunks. Prompts of a step wait for no more than the step has, else
  // relays would take from them what short steps give.
  const int budget_rows = (step.budget - step.n_prefill) * backend_->model().n_layers;
  const int alone_rows = step.n_prefill > 0 ? step.budget : limits_.max_step_tokens;
  const int max_rows = step.n_rows == 0 ? alone_rows : std::min(alone_rows, budget_rows);
  if (max_rows <= 0) return true;
  const absl::Time start = ports_.clock();
  const std::optional<SliceBlock> block = prefill_.NextBlock(max_rows);
  if (!block) {
    slice_waits_since_ = std::min(slice_waits_since_, start);
    return false;
  }
  if (slice_waits_since_ < start && !block->is_first())
    metrics_.slice_wait_seconds += absl::ToDoubleSeconds(start - slice_waits_since_);
  slice_waits_since_ = absl::InfiniteFuture();
  if (block->is_first()) slice_ran_ = absl::ZeroDuration();
  if (ports_.expect) {
    const PrefillCost cost = prefill_meter_.cost();
    const bool is_measured = metrics_.slice_blocks > 0 && cost.is_known();
    ports_.expect(absl::Seconds(is_measured ? cost.Layer(block->to - block->from, max_context_)
                                            : kUnmeasuredSeconds));
  }
  prefill_.Compute(*block, backend_);
  const absl::Time end = ports_.clock();
  slice_ran_ += end - start;
  ++metrics_.slice_blocks;
  metrics_.slice_seconds += absl::ToDoubleSeconds(end - start);
  const ComputedSlice done = prefill_.BlockDone(*block, *backend_, &sampler_, end - start, end);
  if (done.tokens > 0) {
    metrics_.prefill_tokens += done.tokens;
    prefill_meter_.Add(done.tokens, CausalPairs(done.tokens, done.before),
                       absl::ToDoubleSeconds(slice_ran_));
  }
  TakeEffects();
  return true;
}

void WorkerCore::Measure(const Step& step, absl::Duration layers, absl::Duration duration) {
  const int n_rows = step.n_rows, n_prefill = step.n_prefill;
  const double seconds = absl::ToDoubleSeconds(duration);
  ++metrics_.steps;
  metrics_.mixed_steps += n_rows > 0 && n_prefill > 0;
  metrics_.prefill_tokens += n_prefill;
  metrics_.decode_tokens += n_rows;
  metrics_.step_seconds += seconds;
  metrics_.step_tokens.Observe(n_prefill + n_rows);
  metrics_.step_durations.Observe(seconds);
  metrics_.last_step_seconds = seconds;
  if (n_prefill > 0) metrics_.prefill_seconds += seconds;
  if (n_rows > 0) metrics_.decode_seconds += seconds;
  const double pairs = PairsOf(builder_.batch(), n_rows);
  if (n_rows == 0) return prefill_meter_.Add(n_prefill, pairs, absl::ToDoubleSeconds(layers));
  plain_seconds_ = step_meter_.cost().Seconds(n_rows, step.keys);
  if (!builder_.batch().scored_rows.empty()) return;  // the cost of scoring is not fitted
  // Where prompts hardly have steps of their own, what is left of mixed ones must do.
  if (n_prefill > 0 && prefill_meter_.fitted_tokens() < WorkerLoad::kKnownTokens)
    return prefill_meter_.Add(n_prefill, pairs, seconds - plain_seconds_);
  step_meter_.Add(n_rows, step.keys, prefill_meter_.cost().Work(n_prefill, pairs), seconds);
}

// --- effects and reports

template <typename Core>
void WorkerCore::TakeEffectsOf(Core* core) {
  const auto take = Overloaded{
      [this](TransferCommand& command) {
        if (const auto* held = std::get_if<LendHeld>(&command))
          lender_.CountHeld(static_cast<int>(held->pages.size()));
        ports_.transfer(std::move(command));
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
  load.prefill_cost = prefill_meter_.cost();
  const double pairs = queued.pairs_of_token();
  load.prompt_step_seconds = load.prefill_cost.Work(prefill_meter_.StepTokens(pairs), pairs);
  load.fitted_tokens = prefill_meter_.fitted_tokens();
  load.step_cost = step_meter_.cost();
  return load;
}

absl::Time WorkerCore::NextDeadline() const {
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
