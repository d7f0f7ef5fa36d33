#include "worker/engine_steps.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/worker_core.h"

namespace baton {
namespace {

// Counts a prompt token that is scored beside decode rows: the token needs the LM head too, which
// takes about as long as the layers where these are small.
constexpr int kScoredCost = 2;

// Expected of a computation whose kind has not been measured yet; and of a process's first ones,
// which may wait for their weights to come from the disk.
constexpr double kUnmeasuredSeconds = 10;

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

// Returns what a step should take at most: its rows, and prompt tokens beside them, scored or not.
// The cost of prompts is that of full steps, and a short one may take as long.
double StepSeconds(const StepCost& cost, const PrefillCost& prefill, const EngineSteps::Step& step,
                   int full_step) {
  if ((step.n_rows > 0 && !cost.is_known()) || (step.n_prefill > 0 && !prefill.is_known()))
    return kUnmeasuredSeconds;
  double prompts = step.n_prefill > 0 ? prefill.Work(full_step, step.pairs) : 0;
  if (step.is_scored) prompts *= kScoredCost;
  return step.n_rows > 0 ? cost.Seconds(step.n_rows, step.keys) + cost.beside * prompts : prompts;
}

}  // namespace

EngineSteps::EngineSteps(const WorkerCoreOptions& options, const WorkerFacts& facts,
                         const WorkerPorts& ports, Parts parts)
    : options_(options),
      ports_(ports),
      parts_(std::move(parts)),
      limits_(parts_.backend->limits()),
      max_context_(facts.max_context),
      backend_(parts_.backend),
      prefill_(*parts_.prefill),
      decode_(*parts_.decode),
      metrics_(*parts_.metrics),
      prefill_meter_(ShapeOfCost(backend_->kv_layout()),
                     {.time = options.prompt_step.time,
                      .min_tokens = options.prompt_step.min_tokens,
                      .max_tokens = limits_.max_step_tokens},
                     PairShareOf(backend_->model()), facts.first_cost) {}

// --- submission

bool EngineSteps::has_room() const {
  const auto depth = static_cast<size_t>(backend_->depth());
  return steps_.size() < depth && blocks_.size() < depth &&
         (steps_.empty() || steps_.back().is_sampled);
}

EngineSteps::Step EngineSteps::Compose(absl::Time now, int pool_pages) {
  BATON_CHECK(has_room());
  builder_.Clear();
  Step step;
  step.n_rows = decode_.Contribute(now, parts_.lender->reclaimable(), &builder_);
  step.keys = KeysOf(builder_.batch());
  step.budget = PromptTokens(step.n_rows, step.keys);
  const int kept = parts_.lender->sequences_first() ? pool_pages : decode_.growth_pages();
  PromptShare share{.tokens = step.budget};
  if (step.n_rows > 0) {
    share.scored_cost = kScoredCost;
  } else {
    share.enough = options_.prompt_step.enough_tokens;
    share.while_asking = options_.prompt_step.asking_tokens;
  }
  step.n_prefill = prefill_.Contribute(share, kept, now, &builder_);
  step.pairs = PairsOf(builder_.batch(), step.n_rows);
  step.is_scored = !builder_.batch().scored_rows.empty();
  if (step.n_tokens() > 0) backend_->Begin(builder_.batch());
  return step;
}

// Prompt tokens of a step with rows that read so many keys: as many as make it itl_stretch times as
// long. What their attention costs is taken to be that of the queue's tokens on average: more than
// it is at the beginning of a prompt, and what it is at the end.
int EngineSteps::PromptTokens(int n_rows, double keys) const {
  const double pairs = prefill_.prompts().queue().queued().pairs_of_token();
  if (n_rows == 0) return prefill_meter_.StepTokens(pairs);
  const int max_tokens = limits_.max_step_tokens - n_rows;
  const StepCost& step = step_meter_.cost();
  const double of_token = step.beside * prefill_meter_.cost().Work(1, pairs);
  const double seconds = (options_.itl_stretch - 1) * step.Seconds(n_rows, keys);
  const double tokens = of_token > 0 ? std::min<double>(seconds / of_token, max_tokens) : 0;
  return std::min(max_tokens, std::max(options_.min_mixed_tokens, static_cast<int>(tokens)));
}

int EngineSteps::LayersAtOnce() const {
  const int n_layers = backend_->model().n_layers;
  const int64_t layer_bytes = prefill_.AnnouncedBytesPerLayer();
  const int64_t layers = layer_bytes == 0 ? n_layers : options_.announce_bytes / layer_bytes;
  return static_cast<int>(std::clamp<int64_t>(layers, 1, n_layers));
}

void EngineSteps::Run(const Step& step) {
  const int n_layers = backend_->model().n_layers, layers_at_once = LayersAtOnce();
  Submitted& submitted = steps_.emplace_back(Submitted{.step = step, .start = ports_.clock()});
  if (ports_.expect) {
    const double seconds =
        StepSeconds(step_meter_.cost(), prefill_meter_.cost(), step, limits_.max_step_tokens);
    submitted.expected = Expect(metrics_.steps == 0 ? kUnmeasuredSeconds : seconds);
  }
  const bool can_sample = step.n_rows == 0 || decode_.CanSample();
  if (can_sample && step.n_rows > 0 && ports_.masks != nullptr)
    ports_.masks->Start(decode_.unmasked());
  for (int from = 0; from < n_layers; from += layers_at_once) {
    const int to = std::min(from + layers_at_once, n_layers);
    backend_->RunLayers(from, to);
    prefill_.LayersDone(to);
    parts_.take_effects();
  }
  if (step.n_prefill > 0) prefill_.StepSubmitted(submitted.start);
  parts_.take_effects();
  if (can_sample) SampleNewest();
  Complete();
}

void EngineSteps::FinishMasks() {
  if (ports_.masks != nullptr) return ports_.masks->Wait();
  for (SequenceSampling* sequence : decode_.unmasked()) sequence->MakeMask();
}

void EngineSteps::SampleNewest() {
  Submitted& newest = steps_.back();
  const bool has_rows = newest.step.n_rows > 0, has_prefill = newest.step.n_prefill > 0;
  sampling_.clear();
  if (has_rows) {
    FinishMasks();
    decode_.AddSampling(&sampling_);
  }
  if (backend_->reached(backend_->submitted())) newest.layers_end = ports_.clock();
  if (has_prefill) prefill_.AddSampling(&sampling_);
  backend_->Sample(sampling_, &newest.out);
  newest.is_sampled = true;
  newest.done = backend_->submitted();
  if (!newest.step.is_scored) return;
  if (steps_.size() == 1 && HasResults(newest.done)) {  // tokens do not wait for scores
    CompleteRows(&newest);
    parts_.take_effects();
    parts_.send_report();
  }
  prefill_.Score(backend_);
  newest.done = backend_->submitted();
}

bool EngineSteps::RunSliceBlock(const Step& step) {
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
  Block& under_way = blocks_.emplace_back(Block{.is_first = block->is_first(), .start = start});
  if (ports_.expect) {
    const PrefillCost cost = prefill_meter_.cost();
    const bool is_measured = metrics_.slice_blocks > 0 && cost.is_known();
    under_way.expected = Expect(is_measured ? cost.Layer(block->to - block->from, max_context_)
                                            : kUnmeasuredSeconds);
  }
  prefill_.Compute(*block, backend_);
  if (backend_->reached(backend_->submitted())) under_way.end = ports_.clock();
  under_way.block = prefill_.BlockSubmitted(*block, backend_, &under_way.out, start);
  under_way.done = backend_->submitted();
  parts_.take_effects();
  Complete();
  return true;
}

absl::Duration EngineSteps::Expect(double seconds) const {
  const absl::Duration expected = absl::Seconds(seconds);
  ports_.expect(expected);
  return expected;
}

// --- completion

absl::Duration EngineSteps::expected() const {
  absl::Duration sum;
  for (const Submitted& step : steps_) sum += step.expected;
  for (const Block& block : blocks_) sum += block.expected;
  return sum;
}

bool EngineSteps::HasResults(Fence fence) const {
  return backend_->reached(fence) && !backend_->lost();
}

Fence EngineSteps::next() const {
  if (steps_.empty()) return blocks_.front().done;
  // The oldest step is sampled: nothing is before it.
  return blocks_.empty() ? steps_.front().done
                         : std::min(steps_.front().done, blocks_.front().done);
}

void EngineSteps::Complete() {
  while (has_under_way() && HasResults(next())) {
    if (!steps_.empty() && steps_.front().done == next())
      CompleteStep();
    else
      CompleteBlock();
    if (!steps_.empty() && !steps_.back().is_sampled && decode_.CanSample()) {
      if (ports_.masks != nullptr) ports_.masks->Start(decode_.unmasked());
      SampleNewest();
    }
  }
}

void EngineSteps::CompleteRows(Submitted* submitted) {
  if (submitted->step.n_rows == 0 || std::exchange(submitted->rows_are_done, true)) return;
  if (submitted->layers_end == absl::InfiniteFuture()) submitted->layers_end = ports_.clock();
  decode_.StepDone(submitted->out.sampled, submitted->layers_end);
}

void EngineSteps::CompleteStep() {
  Submitted submitted = std::move(steps_.front());
  steps_.pop_front();
  CompleteRows(&submitted);
  if (submitted.layers_end == absl::InfiniteFuture()) submitted.layers_end = ports_.clock();
  if (submitted.step.n_prefill > 0) prefill_.StepDone(submitted.out.sampled, submitted.layers_end);
  parts_.take_effects();
  const absl::Time start = std::max(submitted.start, busy_until_);
  busy_until_ = ports_.clock();
  const absl::Duration took = absl::Seconds(submitted.out.seconds);
  if (took > absl::ZeroDuration()) return Measure(submitted.step, took, took);
  Measure(submitted.step, submitted.layers_end - start, busy_until_ - start);
}

void EngineSteps::CompleteBlock() {
  Block block = std::move(blocks_.front());
  blocks_.pop_front();
  if (block.end == absl::InfiniteFuture()) block.end = ports_.clock();
  absl::Duration took = absl::Seconds(block.out.seconds);
  // A step that was submitted before it may have completed later by the clock.
  if (took == absl::ZeroDuration())
    took = std::max(absl::ZeroDuration(), block.end - std::max(block.start, busy_until_));
  busy_until_ = std::max(busy_until_, block.end);
  if (block.is_first) slice_ran_ = absl::ZeroDuration();
  slice_ran_ += took;
  ++metrics_.slice_blocks;
  metrics_.slice_seconds += absl::ToDoubleSeconds(took);
  prefill_.BlockDone(block.block, &block.out, took, block.end);
  const double tokens = block.block.tokens;
  if (tokens > 0) {
    metrics_.prefill_tokens += static_cast<uint64_t>(tokens);
    prefill_meter_.Add(tokens, CausalPairs(block.block.tokens, block.block.before),
                       absl::ToDoubleSeconds(slice_ran_));
  }
  parts_.take_effects();
}

void EngineSteps::Measure(const Step& step, absl::Duration layers, absl::Duration duration) {
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
  if (n_rows == 0) return prefill_meter_.Add(n_prefill, step.pairs, absl::ToDoubleSeconds(layers));
  plain_seconds_ = step_meter_.cost().Seconds(n_rows, step.keys);
  if (step.is_scored) return;  // the cost of scoring is not fitted
  // Where prompts hardly have steps of their own, what is left of mixed ones must do: without the
  // rows, these would have the base alone.
  if (n_prefill > 0 && prefill_meter_.fitted_tokens() < WorkerLoad::kKnownTokens)
    return prefill_meter_.Add(n_prefill, step.pairs,
                              seconds - plain_seconds_ + step_meter_.cost().base);
  step_meter_.Add(n_rows, step.keys, prefill_meter_.cost().Work(n_prefill, step.pairs), seconds);
}

}  // namespace baton
