#include "prefill_worker/prefill_scheduler.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

using Phase = PromptState;

PrefillScheduler::PrefillScheduler(const PrefillOptions& options, const PrefillFacts& facts,
                                   KvPool* pool, PrefixIndex* index)
    : options_(options),
      facts_(facts),
      layout_(pool->layout()),
      prompts_(options, facts, pool, index, &effects_) {
  BATON_CHECK(facts.max_context > 0);
}

// --- one step

int PrefillScheduler::Contribute(const PromptShare& share, int kept_pages, absl::Time now,
                                 StepBuilder* builder) {
  BATON_DCHECK(pieces_.empty());
  prompts_.pages().BeginTurn(kept_pages);
  const int before = builder->n_tokens();
  const Prompt* running = SlicePrompt();
  bool may_start = true, slice_is_next = false;
  const std::vector<Prompt*>& in_order = prompts_.queue().InOrder();
  int budget = share.tokens;
  if (ShorterAsks(in_order)) budget = std::min(budget, share.while_asking);
  for (Prompt* prompt : in_order) {
    if (!pieces_.empty()) budget = std::min(budget, share.enough - (builder->n_tokens() - before));
    if (budget <= 0) break;
    // Prompts after a slice that continues wait for it; but other ranks may await their inflow.
    if (slice_is_next && !prompt->is_rank) continue;
    if (prompt->phase != Phase::kRunning && prompt->phase != Phase::kInflow) {
      if (!prompts_.TakePages(prompt, may_start, now)) {
        // Smaller prompts may pass one that waits for pages, but not for ever.
        if (prompts_.queue().IsAged(*prompt) && prompt->phase != Phase::kEnding) may_start = false;
        continue;
      }
    }
    if (!RunsInSteps(prompt)) {
      ChooseSlice(prompt, now, &running);
      slice_is_next |= prompt == running && NextBlock(1).has_value();
    }
    if (!RunsInSteps(prompt)) continue;
    const int cost = prompt->is_scored() ? share.scored_cost : 1;
    budget -= cost * AddPiece(prompt, std::max(1, budget / cost), now, builder);
  }
  for (const Piece& piece : pieces_)
    prompts_.queue().CountOvertaking(*piece.prompt, piece.end - piece.begin);
  prompts_.SendOpens(now);
  return builder->n_tokens() - before;
}

// True if a prompt that would go before those that can run awaits its promise, which usually comes
// during the step: the sink answers at once, or between two of its own steps.
bool PrefillScheduler::ShorterAsks(const std::vector<Prompt*>& in_order) {
  constexpr int kAskingSteps = 4;  // then the sink takes longer than short steps are worth
  if (in_order.empty()) return false;
  bool asks = false;
  for (const auto& prompt : prompts_.queue().prompts()) {
    const bool awaits = prompt->phase == Phase::kQueued || prompt->phase == Phase::kOpening;
    if (!awaits || !prompt->is_remote || prompt->lacks_room) continue;
    if (prompt->remaining() >= in_order.front()->remaining()) continue;
    asks |= ++prompt->asking_steps <= kAskingSteps;
  }
  return asks;
}

// Starts the prompt, or its next slice: a chunk or block follows.
void PrefillScheduler::Run(Prompt* prompt, absl::Time now) {
  prompt->phase = Phase::kRunning;
  if (prompt->at == 0) prompt->first_step = now;
  prompts_.sender().BeginSlice(prompt);
}

int PrefillScheduler::AddPiece(Prompt* prompt, int budget, absl::Time now, StepBuilder* builder) {
  if (prompt->slice().is_computed()) return 0;  // its first token is under way
  if (prompt->slice().misses_inflow(layout_.n_layers())) return 0;
  if (prompt->phase != Phase::kRunning) Run(prompt, now);
  const int32_t done = prompt->slice().done;
  int n = std::min(prompt->slice().end - done, budget);
  if (options_.chunk_tokens > 0) n = std::min(n, options_.chunk_tokens);
  Piece piece{prompt, done, done + n, -1, 0, 0};
  const std::span<const int32_t> tokens(prompt->request.tokens);
  const std::span<const int32_t> pages(prompt->pages);
  const int row = builder->AddPiece(tokens.subspan(piece.begin, n), piece.begin,
                                    pages.first(layout_.PagesFor(piece.end)), prompt->range);
  const bool is_last = piece.end == prompt->size() && !prompt->is_for_rank();
  if (prompt->is_scored()) piece.scores = builder->WantScores(row, row + n - (is_last ? 1 : 0));
  if (is_last) piece.logits = builder->WantLogits(row + n - 1);
  pieces_.push_back(piece);
  return n;
}

int64_t PrefillScheduler::AnnouncedBytesPerLayer() const {
  int64_t pages = 0;
  for (const Piece& piece : pieces_) {
    if (!piece.prompt->is_remote) continue;
    pages += piece.prompt->FinalPages(piece.end, layout_) - piece.begin / layout_.page_tokens;
  }
  return pages * (layout_.page_bytes / layout_.n_layers());  // layers may differ in width
}

void PrefillScheduler::LayersDone(int to) {
  for (Piece& piece : pieces_) {
    const int from = std::exchange(piece.announced, to);
    prompts_.sender().AnnounceTokens(*piece.prompt, from, to - from, piece.begin, piece.end);
  }
}

// Log-probabilities of the prompt's tokens: the logits of a row score the token at the next
// position, but the prompt's last row's are for the first token to be drawn. A few rows at a time,
// so that memory does not grow with the chunk.
void PrefillScheduler::AddScores(const Piece& piece, Result* to) const {
  static_assert(Backend::kScoredAtOnce <= PromptLogprobs::kMaxTokens);
  const PrefillRequest& request = piece.prompt->request;
  const int32_t vocab = facts_.model->vocab, given_end = request.sampling.vocab_end;
  const auto end_id = static_cast<size_t>(given_end > 0 ? std::min(given_end, vocab) : vocab);
  const int32_t end = std::min(piece.end, piece.prompt->size() - 1);
  for (int32_t from = piece.begin; from < end; from += Backend::kScoredAtOnce) {
    const int32_t n = std::min(Backend::kScoredAtOnce, end - from);
    PromptLogprobs& told = to->scores.emplace_back();
    told.request_id = request.request_id;
    told.epoch = request.epoch;
    told.position = from + 1;
    const std::span<const int32_t> next =
        std::span(request.tokens).subspan(static_cast<size_t>(from) + 1, n);
    told.tokens.resize(next.size());
    to->scored_tokens.insert(to->scored_tokens.end(), next.begin(), next.end());
  }
  to->scored = {.first = piece.scores, .top = request.prompt_logprobs, .end = end_id};
}

std::shared_ptr<SequenceSampling> PrefillScheduler::SamplingOf(const Prompt& prompt) const {
  const PrefillRequest& request = prompt.request;
  return std::make_shared<SequenceSampling>(request.sampling, request.stop_tokens, request.tokens,
                                            request.n_generated, prompt.grammar.get());
}

void PrefillScheduler::StepSubmitted(absl::Time now) {
  std::vector<Result>& results = steps_.emplace_back();
  for (const Piece& piece : pieces_) {
    Prompt* const prompt = piece.prompt;
    Result& result = results.emplace_back(Result{.prompt = prompt->serial, .logits = piece.logits});
    if (prompt->request.epoch > 1) prompt->last_word.recomputed_tokens += piece.end - piece.begin;
    prompt->progress = now;
    Computed(prompt, piece.end);
    if (prompt->is_scored()) AddScores(piece, &result);
    if (piece.logits < 0) continue;
    result.sampling = SamplingOf(*prompt);
    result.wants_digest = prompt->request.want_digests;
    result.position = prompt->size();
  }
  pieces_.clear();
}

void PrefillScheduler::AddSampling(std::vector<RowSampling>* rows) const {
  for (const Result& result : steps_.back()) {
    if (result.sampling == nullptr) continue;
    result.sampling->MakeMask();
    rows->push_back({.sampling = result.sampling,
                     .position = result.position,
                     .wants_digest = result.wants_digest});
  }
}

void PrefillScheduler::Score(Backend* backend) {
  for (Result& result : steps_.back()) {
    ScoredRows rows = result.scored;
    std::span<const int32_t> tokens = result.scored_tokens;
    for (PromptLogprobs& told : result.scores) {
      rows.tokens = tokens.first(told.tokens.size());
      backend->Score(rows, told.tokens);
      tokens = tokens.subspan(rows.tokens.size());
      rows.first += static_cast<int>(rows.tokens.size());
    }
  }
}

Prompt* PrefillScheduler::Awaiting(int64_t serial) const {
  const auto& prompts = prompts_.queue().prompts();  // in the order of serials
  const auto it = std::ranges::lower_bound(prompts, serial, {},
                                           [](const auto& prompt) { return prompt->serial; });
  const bool is_there = it != prompts.end() && (*it)->serial == serial;
  return is_there && (*it)->phase != Phase::kEnding ? it->get() : nullptr;
}

void PrefillScheduler::TakeFirstToken(Prompt* prompt, SequenceSampling* sampling,
                                      SampledToken* sampled, absl::Time now) {
  const PrefillRequest& request = prompt->request;
  sampling->Push(sampled->token);
  if (!sampling->status().ok()) {
    prompts_.Stop(prompt, EndReason::kFailed, sampling->status(), PartFault::kGrammar);
    return;
  }
  prompt->computed = now;
  effects_.emplace_back(WorkerEvent(PromptComputed{
      .request_id = request.request_id,
      .epoch = request.epoch,
      .queue_us = absl::ToInt64Microseconds(prompt->first_step - prompt->admitted),
      .compute_us = absl::ToInt64Microseconds(now - prompt->first_step),
      .reused_tokens = prompt->last_word.reused_tokens,
      .inbox_us = request.received == absl::UnixEpoch()
                      ? 0
                      : absl::ToInt64Microseconds(prompt->admitted - request.received),
      .computed = now}));
  effects_.emplace_back(WorkerEvent(TokenOut{.request_id = request.request_id,
                                             .epoch = request.epoch,
                                             .position = prompt->size(),
                                             .token = sampled->token,
                                             .logprob = sampled->logprob,
                                             .digest = sampled->digest,
                                             .logprobs = std::move(sampled->logprobs)}));
  prompts_.FirstToken(prompt, sampled->token);
}

void PrefillScheduler::Computed(Prompt* prompt, int32_t end) {
  prompt->slice().done = end;
  if (!prompt->is_for_rank()) {
    prompts_.pages().Enter(prompt);
    prompts_.pages().Trim(prompt);
  } else if (prompt->slice().is_computed()) {
    prompts_.SliceComputed(prompt);
  }
}

void PrefillScheduler::StepDone(std::span<SampledToken> sampled, absl::Time now) {
  std::vector<Result> results = std::move(steps_.front());
  steps_.pop_front();
  for (Result& result : results) {
    Prompt* const prompt = Awaiting(result.prompt);
    if (prompt == nullptr) continue;
    prompt->progress = now;
    for (PromptLogprobs& told : result.scores) effects_.emplace_back(WorkerEvent(std::move(told)));
    if (result.sampling != nullptr)  // may end the prompt
      TakeFirstToken(prompt, result.sampling.get(), &sampled[static_cast<size_t>(result.logits)],
                     now);
  }
}

// --- the slice

Prompt* PrefillScheduler::SlicePrompt() const {
  for (const auto& prompt : prompts_.queue().prompts())
    if (prompt->phase == Phase::kRunning && IsOnEngine(prompt->slice())) return prompt.get();
  return nullptr;
}

// True if the engine holds what there is of the slice, running or not.
bool PrefillScheduler::IsOnEngine(const PromptSlice& slice) const {
  return slice.run && slice.run_id == engine_run_ && !slice.is_computed();
}

// True if a rank computes a lost rank's slice in steps, because the engine holds a later slice of
// its own, which steps leave there. No inflow of the lost rank's slice is missing then.
bool PrefillScheduler::RunsInSteps(Prompt* prompt) const {
  if (!prompt->is_rank) return true;
  PromptSlice& slice = prompt->slice();
  if (!slice.run && !slice.is_computed())
    slice.in_steps |= std::any_of(prompt->slices.begin(), prompt->slices.end(),
                                  [this](const PromptSlice& later) { return IsOnEngine(later); });
  return slice.in_steps;
}

void PrefillScheduler::ChooseSlice(Prompt* prompt, absl::Time now, const Prompt** running) {
  PromptSlice& slice = prompt->slice();
  const bool inflow_moves = !slice.has_inflow() || slice.inflow > slice.inflow_before;
  if (prompt->phase == Phase::kRunning || !inflow_moves) return;
  const bool done = slice.is_computed();
  bool again = prompt->request.epoch > 1 && !slice.goes_on;
  if (!done) {
    if (*running != nullptr) return;
    *running = prompt;
    if (slice.run && slice.run_id != engine_run_) {  // the engine has another by now
      again = true;
      slice.run.reset();
    }
  }
  Run(prompt, now);
  if (slice.has_inflow()) prompts_.sender().PassOn(*prompt, {});
  if (slice.run || done) prompts_.sender().AnnounceProjected(*prompt);
  if (done) {
    prompts_.SliceComputed(prompt);
    // The KV before the next slice may be here already.
    if (prompt->phase == Phase::kInflow && !RunsInSteps(prompt)) ChooseSlice(prompt, now, running);
    return;
  }
  if (slice.run) return;
  const int page_tokens = layout_.page_tokens;
  slice.run.emplace(
      SliceRun::Shape{.n_layers = layout_.n_layers(),
                      .n_rows = slice.end - slice.done,
                      .wants_logits = !prompt->is_for_rank(),
                      .inflow_pages = slice.has_inflow() ? slice.begin / page_tokens : 0,
                      .page_tokens = page_tokens,
                      .segment_keys = facts_.limits.slice_keys});
  slice.run_id = ++engine_run_;
  if (again) prompt->last_word.recomputed_tokens += slice.run->n_rows();
}

// For its rows everything before the slice is inflow, of which the earlier rounds' part is there.
// A slice that was left may have begun with one that this attempt does not have.
std::optional<SliceBlock> PrefillScheduler::NextBlock(int max_rows) const {
  const Prompt* const prompt = SlicePrompt();
  if (prompt == nullptr) return std::nullopt;
  const PromptSlice& slice = prompt->slice();
  InflowProgress inflow = slice.inflow;
  inflow.pages += slice.lacks_from / layout_.page_tokens;
  if (!slice.has_inflow()) inflow = {.planes = layout_.n_layers(), .pages = 0};
  return slice.run->Next(max_rows, inflow);
}

void PrefillScheduler::Compute(const SliceBlock& block, Backend* backend) const {
  if (block.is_first()) {
    const Prompt& prompt = *SlicePrompt();
    const PromptSlice& slice = prompt.slice();
    StepBuilder whole;
    whole.AddPiece(std::span(prompt.request.tokens).subspan(slice.done, slice.end - slice.done),
                   slice.done, std::span(prompt.pages).first(layout_.PagesFor(slice.end)),
                   prompt.range);
    if (!prompt.is_for_rank()) whole.WantLogits(whole.n_tokens() - 1);
    backend->BeginSlice(whole.batch());
  }
  switch (block.kind) {
    case SliceBlock::Kind::kProject:
      return backend->ProjectSlice(block.layer, block.from, block.to);
    case SliceBlock::Kind::kAttend:
      return backend->AttendSlice(block.layer, block.from, block.to, block.end_key);
    case SliceBlock::Kind::kFinish:
      return backend->FinishSlice(block.layer, block.from, block.to);
  }
}

SubmittedBlock PrefillScheduler::BlockSubmitted(const SliceBlock& block, Backend* backend,
                                                StepOutput* out, absl::Time now) {
  Prompt* const prompt = SlicePrompt();
  PromptSlice& slice = prompt->slice();
  SubmittedBlock submitted{.prompt = prompt->serial};
  prompt->progress = now;
  const bool layer_ends = slice.run->Computed(block);
  const int n_rows = slice.run->n_rows();
  if (layer_ends) {
    // A layer of the slice is worth so many tokens.
    const int n_layers = layout_.n_layers();
    prompts_.queue().CountOvertaking(*prompt, (n_rows + n_layers - 1) / n_layers);
  }
  if (block.kind == SliceBlock::Kind::kProject)
    prompts_.sender().AnnounceTokens(*prompt, block.layer, 1, slice.done + block.from,
                                     slice.done + block.to);
  if (!slice.run->done()) return submitted;
  submitted.tokens = n_rows;
  submitted.before = slice.done;
  const bool wants_token = !prompt->is_for_rank();
  Computed(prompt, slice.end);
  if (!wants_token) return submitted;
  submitted.sampling = SamplingOf(*prompt);
  submitted.sampling->MakeMask();
  backend->SampleSlice({.sampling = submitted.sampling,
                        .position = prompt->size(),
                        .wants_digest = prompt->request.want_digests},
                       out);
  return submitted;
}

void PrefillScheduler::BlockDone(const SubmittedBlock& block, StepOutput* out, absl::Duration took,
                                 absl::Time now) {
  Prompt* const prompt = Awaiting(block.prompt);
  if (prompt == nullptr) return;
  prompt->progress = now;
  prompt->last_word.compute_us += absl::ToInt64Microseconds(took);
  if (block.sampling != nullptr)  // may end the prompt
    TakeFirstToken(prompt, block.sampling.get(), &out->sampled.front(), now);
}

}  // namespace baton
