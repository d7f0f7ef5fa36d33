#include "worker/worker_core.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "proto/control_codec.h"

namespace baton {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// Counts a prompt token that is scored beside decode rows: the token needs the LM head too, which
// takes about as long as the layers where these are small.
constexpr int kScoredCost = 2;

constexpr absl::Duration kMaxLoadInterval = absl::Seconds(1);
constexpr absl::Duration kMinLoadInterval = absl::Milliseconds(20);

PrefillFacts PrefillFactsOf(const WorkerFacts& facts, const Backend& backend) {
  return {.self = facts.self,
          .vocab = backend.model().vocab,
          .max_context = facts.max_context,
          .max_slice_tokens = backend.limits().max_slice_tokens,
          .slice_keys = backend.limits().slice_keys,
          .rope = backend.model().rope};
}

int LentPerTurn(const WorkerCoreOptions& options, const KvPool& pool) {
  return static_cast<int>(
      std::max<int64_t>(1, options.zeroed_bytes_per_turn / pool.layout().page_bytes));
}

// Pairs of queries and keys of a step's pieces from `first` on.
double PairsOf(const StepBatch& batch, int first) {
  double pairs = 0;
  for (int piece = first; piece < batch.n_pieces(); ++piece) {
    const int begin = batch.piece_begin[piece];
    pairs += CausalPairs(batch.piece_begin[piece + 1] - begin, batch.positions[begin]);
  }
  return pairs;
}

// Into a recent average.
void Mix(double* average, double value) {
  constexpr double kNew = 0.2;  // weight of the newest
  *average = *average == 0 ? value : *average + kNew * (value - *average);
}

bool SameLoad(const WorkerLoad& a, const WorkerLoad& b) {
  return a.prefill_queued_tokens == b.prefill_queued_tokens && a.decode_rows == b.decode_rows &&
         a.decode_waiting == b.decode_waiting && a.pages_free == b.pages_free &&
         a.draining == b.draining;
}

}  // namespace

WorkerCore::WorkerCore(const WorkerCoreOptions& options, const WorkerFacts& facts, Backend* backend,
                       KvPool* pool, WorkerPorts ports)
    : options_(options),
      limits_(backend->limits()),
      backend_(backend),
      pool_(pool),
      ports_(std::move(ports)),
      prefill_(options.prefill, PrefillFactsOf(facts, *backend), pool),
      decode_(options.decode, {.vocab = backend->model().vocab, .rope = backend->model().rope},
              pool),
      lender_(pool, facts.role == Role::kDecode, LentPerTurn(options, *pool)),
      sampler_(backend->compute_pool()),
      prefill_meter_({.n_layers = backend->model().n_layers,
                      .kv_bytes = static_cast<double>(pool->layout().token_bytes())},
                     limits_.max_step_tokens, facts.first_cost) {
  BATON_CHECK(facts.self != 0 && facts.max_context > 0);
  // A step with every row still has a place for prefill.
  BATON_CHECK(options.decode.max_batch > 0 && options.decode.max_batch < limits_.max_step_tokens);
  BATON_CHECK(options.mixed_prefill_tokens > 0);
}

// --- events

void WorkerCore::Handle(RouterEvent event) {
  std::visit(Overloaded{
                 [this](const RouterConnected&) {
                   connected_ = true;
                   load_reported_ = absl::InfinitePast();  // a new router knows nothing yet
                 },
                 [this](RouterMessages& messages) {
                   for (RouterMessage& message : messages.messages)
                     HandleMessage(std::move(message));
                 },
                 [this](const RouterDisconnected&) {
                   // The router counts all of it as lost and aims it elsewhere.
                   connected_ = false;
                   desk_.Clear();
                   prefill_.prompts().CancelAll();
                   decode_.CancelAll();
                 },
             },
             event);
}

void WorkerCore::HandleMessage(RouterMessage message) {
  std::visit(Overloaded{
                 [&](PrefillRequest&) { HandleRequest(std::move(message)); },
                 [&](DecodeRequest&) { HandleRequest(std::move(message)); },
                 [this](const CancelRequest& request) {
                   CancelWaiting(request.request_id, request.epoch);
                   prefill_.prompts().Cancel(request.request_id, request.epoch);
                   decode_.Cancel(request.request_id, request.epoch);
                 },
                 [this](const DrainWorker&) { Drain(); },
             },
             message);
}

// All attempts at a request have its grammar, and jobs end in their order: so do the attempts
// begin.
void WorkerCore::HandleRequest(RouterMessage message) {
  const PartKey part = PartOf(message);
  if (draining_) {
    Refuse(part, EndReason::kFailed, PartFault::kDraining, "worker is draining");
  } else if (GrammarOf(message).kind == GrammarKind::kNone) {
    Begin(std::move(message), nullptr);
  } else if (!ports_.compile) {
    Refuse(part, EndReason::kFailed, PartFault::kGrammar,
           "this model has no tokenizer, so its text cannot be kept inside a grammar");
  } else if (desk_.is_full()) {
    Refuse(part, EndReason::kFailed, PartFault::kOwn,
           absl::StrFormat("%d requests wait for their grammars", desk_.size()));
  } else {
    ports_.compile(desk_.Add(std::move(message)));
  }
}

void WorkerCore::Handle(GrammarCompiled event) {
  std::optional<RouterMessage> message = desk_.Take(event.id);
  if (!message) return;
  if (event.grammar.ok()) return Begin(*std::move(message), *std::move(event.grammar));
  Refuse(PartOf(*message), EndReason::kFailed, PartFault::kGrammar,
         std::string(event.grammar.status().message()));
}

void WorkerCore::Begin(RouterMessage message, SharedGrammar grammar) {
  if (auto* prefill = std::get_if<PrefillRequest>(&message)) {
    prefill_.prompts().Admit(std::move(*prefill), ports_.clock(), std::move(grammar));
  } else {
    decode_.Expect(std::get<DecodeRequest>(std::move(message)), ports_.clock(), std::move(grammar));
  }
}

void WorkerCore::CancelWaiting(RequestId request, Epoch up_to) {
  for (const PartKey& part : desk_.Cancel(request, up_to))
    Refuse(part, EndReason::kCancelled, PartFault::kOwn, {});
}

void WorkerCore::Refuse(const PartKey& part, EndReason reason, PartFault fault, std::string why) {
  PartEnded ended;
  ended.request_id = part.request_id;
  ended.epoch = part.epoch;
  ended.was_prefill = part.is_prefill;
  ended.reason = reason;
  ended.fault = fault;
  ended.message = std::move(why);
  Report(std::move(ended));
}

void WorkerCore::Handle(TransferEvent event) {
  std::visit(
      Overloaded{
          [this](const HandoffPromised& e) { prefill_.prompts().Promised(e, ports_.clock()); },
          [this](const HandoffNoRoom& e) { prefill_.prompts().NoRoom(e); },
          [this](const HandoffEnded& e) { prefill_.prompts().Ended(e, ports_.clock()); },
          [this](HandoffArrived& e) {
            lender_.Arrived(static_cast<int>(e.pages.size()));
            decode_.Arrived(std::move(e), ports_.clock());
          },
          [this](const HandoffAborted& e) { decode_.Aborted(e); },
          [this](const PagesReturned& e) { lender_.Returned(e); },
          [this](const ReceivePoolChanged& e) { lender_.Changed(e); },
          [this](const InflowArrived& e) { prefill_.prompts().Arrived(e, ports_.clock()); },
          [this](const InflowFailed& e) { prefill_.prompts().Failed(e, ports_.clock()); },
          [this](LinksMeasured& e) {
            if (e.links.size() > ControlLimits::kLinks) e.links.resize(ControlLimits::kLinks);
            links_ = std::move(e.links);
          },
      },
      event);
}

void WorkerCore::Drain() { draining_ = true; }

void WorkerCore::Close() {
  draining_ = true;
  connected_ = false;
  desk_.Clear();
  prefill_.prompts().CancelAll();
  decode_.CancelAll();
  commands_.clear();
  lender_.Close(&commands_);
  for (TransferCommand& command : commands_) ports_.transfer(std::move(command));
  TakeEffects();
}

bool WorkerCore::IsQuiet() const {
  return desk_.size() == 0 && prefill_.prompts().queue().size() == 0 && decode_.n_sequences() == 0;
}

void WorkerCore::Abandon() {
  prefill_.prompts().Abandon();
  decode_.CancelAll();
  prefill_effects_.clear();
  decode_effects_.clear();
  BATON_CHECK(lender_.lent() == 0);
  BATON_CHECK(pool_->held() == 0);
}

// --- a turn

bool WorkerCore::Turn() {
  const absl::Time now = ports_.clock();
  prefill_.prompts().OnTime(now);
  decode_.OnTime(now);
  const Step step = ComposeStep(now);
  lender_.PromptsTook(prefill_.prompts().pages().taken());
  TakeEffects();
  LendPages();
  const bool has_step = step.n_rows + step.n_prefill > 0;
  if (has_step) RunStep(step);
  const bool has_block = RunSliceBlock(RowsBeside(step));
  ReportLoad(ports_.clock());
  SendReport();
  return has_step || has_block || lends_more_;
}

WorkerCore::Step WorkerCore::ComposeStep(absl::Time now) {
  builder_.Clear();
  Step step;
  step.n_rows = decode_.Contribute(now, lender_.unpromised(), &builder_);
  int budget = limits_.max_step_tokens - step.n_rows;
  if (step.n_rows > 0) budget = std::min(budget, options_.mixed_prefill_tokens);
  const int kept = lender_.sequences_first() ? pool_->total() : decode_.growth_pages();
  const int scored_cost = step.n_rows > 0 ? kScoredCost : 1;
  step.n_prefill = prefill_.Contribute(budget, kept, now, &builder_, scored_cost);
  if (builder_.n_tokens() == 0) return step;
  step.scores = !builder_.batch().scored_rows.empty();
  step.prefill_pairs = PairsOf(builder_.batch(), step.n_rows);
  const int n_layers = backend_->model().n_layers;
  const int64_t layer_bytes = prefill_.AnnouncedBytesPerLayer();
  step.layers_at_once = layer_bytes == 0 ? n_layers
                                         : static_cast<int>(std::clamp<int64_t>(
                                               options_.announce_bytes / layer_bytes, 1, n_layers));
  backend_->Begin(builder_.batch());
  return step;
}

void WorkerCore::LendPages() {
  commands_.clear();
  LenderNeeds needs;
  needs.wanted_pages = prefill_.prompts().pages().wanted();
  needs.growth_pages = decode_.growth_pages();
  needs.sequence_pages = decode_.expected_pages();
  needs.expected_wait_us = static_cast<int64_t>(1e6 * metrics_.decode_step_seconds *
                                                static_cast<double>(decode_.steps_to_first_end()));
  // Slices that ended attempts have left make neither rows nor sequences wait.
  const int sequences = lender_.waiting() > 0 ? needs.sequence_pages - lender_.lent() : 0;
  while (pool_->free() < needs.growth_pages + sequences &&
         prefill_.prompts().pages().DiscardOldest()) {
  }
  lends_more_ = lender_.Balance(needs, &commands_);
  for (TransferCommand& command : commands_) ports_.transfer(std::move(command));
}

void WorkerCore::RunStep(const Step& step) {
  const int n_layers = backend_->model().n_layers;
  const absl::Time start = ports_.clock();
  if (ports_.masks != nullptr) ports_.masks->Start(decode_.unmasked());
  for (int from = 0; from < n_layers; from += step.layers_at_once) {
    const int to = std::min(from + step.layers_at_once, n_layers);
    backend_->RunLayers(from, to);
    prefill_.LayersDone(to);
    TakePrefillEffects();
  }
  FinishMasks();
  const absl::Time end = ports_.clock();
  decode_.StepDone(*backend_, &sampler_, end);
  if (step.scores) {  // the rows' tokens do not wait for that
    TakeEffects();
    SendReport();
  }
  prefill_.StepDone(backend_, &sampler_, end);
  TakeEffects();
  Measure(step, end - start, ports_.clock() - start);
}

void WorkerCore::FinishMasks() {
  if (ports_.masks != nullptr) return ports_.masks->Wait();
  for (SequenceSampling* sequence : decode_.unmasked()) sequence->MakeMask();
}

// Rows of a slice's block in the turn of such a step. Those of one layer cost a layer's share of as
// many prompt tokens, and rows of the batch wait for no more of these than beside chunks.
int WorkerCore::RowsBeside(const Step& step) const {
  if (step.n_rows == 0) return limits_.max_step_tokens;
  const int tokens = options_.mixed_prefill_tokens - step.n_prefill;
  return std::min(limits_.max_step_tokens, tokens * backend_->model().n_layers);
}

// False: there is no slice, or it waits.
bool WorkerCore::RunSliceBlock(int max_rows) {
  if (!prefill_.has_slice()) {
    slice_waits_since_ = absl::InfiniteFuture();
    return false;
  }
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
  if (block->is_first()) {
    slice_ran_ = absl::ZeroDuration();
    prefill_.DescribeSlice(&builder_);
    backend_->BeginSlice(builder_.batch());
  }
  Compute(*block);
  const absl::Time end = ports_.clock();
  slice_ran_ += end - start;
  ++metrics_.slice_blocks;
  metrics_.slice_seconds += absl::ToDoubleSeconds(end - start);
  const ComputedSlice done = prefill_.BlockDone(*block, *backend_, &sampler_, end);
  if (done.tokens > 0) {
    metrics_.prefill_tokens += done.tokens;
    prefill_meter_.Add(done.tokens, CausalPairs(done.tokens, done.before),
                       absl::ToDoubleSeconds(slice_ran_));
  }
  TakeEffects();
  return true;
}

void WorkerCore::Compute(const SliceBlock& block) {
  switch (block.kind) {
    case SliceBlock::Kind::kProject:
      return backend_->ProjectSlice(block.layer, block.from, block.to);
    case SliceBlock::Kind::kAttend:
      return backend_->AttendSlice(block.layer, block.from, block.to, block.end_key);
    case SliceBlock::Kind::kFinish:
      return backend_->FinishSlice(block.layer, block.from, block.to);
  }
}

void WorkerCore::Measure(const Step& step, absl::Duration layers, absl::Duration duration) {
  const int n_rows = step.n_rows, n_prefill = step.n_prefill;
  const double seconds = absl::ToDoubleSeconds(duration);
  ++metrics_.steps;
  metrics_.mixed_steps += n_rows > 0 && n_prefill > 0;
  metrics_.prefill_tokens += n_prefill;
  metrics_.decode_tokens += n_rows;
  metrics_.step_seconds += seconds;
  metrics_.last_step_seconds = seconds;
  if (n_prefill > 0) metrics_.prefill_seconds += seconds;
  if (n_rows > 0) metrics_.decode_seconds += seconds;
  if (n_rows == 0) prefill_meter_.Add(n_prefill, step.prefill_pairs, absl::ToDoubleSeconds(layers));
  if (n_prefill == 0) Mix(&metrics_.decode_step_seconds, seconds);
}

// --- effects and reports

void WorkerCore::TakePrefillEffects() {
  prefill_.TakeEffects(&prefill_effects_);
  for (PrefillEffect& effect : prefill_effects_)
    std::visit(
        Overloaded{
            [this](TransferCommand& command) { ports_.transfer(std::move(command)); },
            [this](WorkerEvent& event) { Report(std::move(event)); },
            [this](HandoffArrived& kept) { decode_.Arrived(std::move(kept), ports_.clock()); },
        },
        effect);
  prefill_effects_.clear();
}

void WorkerCore::TakeEffects() {
  TakePrefillEffects();  // first: it may bring sequences to the batch
  decode_.TakeEffects(&decode_effects_);
  for (DecodeEffect& effect : decode_effects_)
    std::visit(Overloaded{
                   [this](TransferCommand& command) { ports_.transfer(std::move(command)); },
                   [this](WorkerEvent& event) { Report(std::move(event)); },
               },
               effect);
  decode_effects_.clear();
}

void WorkerCore::Report(WorkerEvent event) {
  if (const auto* part = std::get_if<PartEnded>(&event)) {
    ++metrics_.parts_ended;
    metrics_.parts_cancelled += part->reason == EndReason::kCancelled;
    metrics_.parts_failed += part->reason == EndReason::kFailed;
    metrics_.preemptions += part->reason == EndReason::kPreempted;
  }
  if (connected_) report_.events.push_back(std::move(event));
}

WorkerLoad WorkerCore::Load() const {
  WorkerLoad load;
  load.prefill_queued_tokens = static_cast<int32_t>(std::min<int64_t>(
      prefill_.prompts().queue().queued_tokens(), std::numeric_limits<int32_t>::max()));
  load.decode_rows = decode_.n_rows();
  load.decode_waiting = decode_.n_waiting();
  load.pages_free = pool_->free() + lender_.unpromised();
  load.prefill_queued_pairs = prefill_.prompts().queue().queued_pairs();
  load.prefill_cost = prefill_meter_.cost();
  load.fitted_tokens = prefill_meter_.fitted_tokens();
  load.decode_step_seconds = metrics_.decode_step_seconds;
  load.draining = draining_;
  return load;
}

void WorkerCore::ReportLoad(absl::Time now) {
  if (!connected_) return;
  WorkerLoad load = Load();
  load_changed_ = !SameLoad(load, reported_load_);
  if (now - load_reported_ < (load_changed_ ? kMinLoadInterval : kMaxLoadInterval)) return;
  load_reported_ = now;
  reported_load_ = load;
  load_changed_ = false;
  load.links = links_;
  Report(std::move(load));
}

void WorkerCore::SendReport() {
  if (report_.events.empty()) return;
  if (connected_) ports_.report(std::move(report_));
  report_.events.clear();
}

absl::Time WorkerCore::NextDeadline() const {
  const absl::Time load =
      connected_ ? load_reported_ + (load_changed_ ? kMinLoadInterval : kMaxLoadInterval)
                 : absl::InfiniteFuture();
  return std::min({load, decode_.NextDeadline(), prefill_.prompts().NextDeadline()});
}

WorkerMetrics WorkerCore::metrics() const {
  WorkerMetrics metrics = metrics_;
  metrics.connected = connected_;
  metrics.draining = draining_;
  metrics.prefill_prompts = prefill_.prompts().queue().size();
  metrics.prefill_running = prefill_.prompts().queue().n_running();
  metrics.prefill_queued_tokens = prefill_.prompts().queue().queued_tokens();
  metrics.reused_tokens = static_cast<uint64_t>(prefill_.prompts().pages().reused_tokens());
  metrics.decode_rows = decode_.n_rows();
  metrics.decode_waiting = decode_.n_waiting();
  metrics.pages_total = pool_->total();
  metrics.pages_free = pool_->free() + lender_.unpromised();
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
