#include "bench/grammar_steps.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"
#include "bench/synthetic_prompt.h"
#include "common/check.h"
#include "common/status.h"
#include "engine/kv/kv_pool.h"

namespace baton {
namespace {

constexpr int32_t kMaxText = 400;  // tokens of a text, which then begins again

}  // namespace

GrammarSteps::GrammarSteps(std::unique_ptr<Backend> backend, std::vector<SharedGrammar> grammars,
                           int32_t end_token, int context, uint64_t seed)
    : backend_(std::move(backend)),
      grammars_(std::move(grammars)),
      end_token_(end_token),
      context_(context),
      random_(seed),
      sampler_(backend_->compute_pool()) {}

GrammarSteps::~GrammarSteps() {
  for (const std::unique_ptr<Row>& row : rows_) pool_->Give(row->pages);
}

absl::StatusOr<std::unique_ptr<GrammarSteps>> GrammarSteps::Make(
    std::unique_ptr<Backend> backend, std::vector<SharedGrammar> grammars, int32_t end_token,
    int n_rows, int context, uint64_t seed) {
  if (n_rows < 1 || context < 1 || context >= backend->model().max_positions ||
      n_rows > backend->limits().max_step_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "bench grammar: %d rows of %d tokens; a step takes 1 to %d rows of up to %d tokens", n_rows,
        context, backend->limits().max_step_tokens, backend->model().max_positions - 1));
  }
  std::unique_ptr<GrammarSteps> steps(
      new GrammarSteps(std::move(backend), std::move(grammars), end_token, context, seed));
  RETURN_IF_ERROR(steps->Prefill(n_rows));
  return steps;
}

absl::Status GrammarSteps::Prefill(int n_rows) {
  const KvLayout& layout = backend_->kv_layout();
  const int n_pages = layout.PagesFor(context_ + 1);
  ASSIGN_OR_RETURN(pool_, KvPool::Create(layout, n_rows * n_pages));
  backend_->SetPages(pool_->pages());
  for (int i = 0; i < n_rows; ++i) {
    Row& row = *rows_.emplace_back(std::make_unique<Row>());
    BATON_CHECK(pool_->Take(n_pages, &row.pages));
    row.free_params.seed = static_cast<uint64_t>(i);
    row.free = std::make_unique<SequenceSampling>(row.free_params);
    BeginText(&row);
    const std::vector<int32_t> prompt =
        MadeUpPrompt(context_ + 1, static_cast<uint64_t>(i), backend_->model().vocab);
    row.token = prompt.back();
    const int chunk = backend_->limits().max_step_tokens;
    for (int begin = 0; begin < context_; begin += chunk) {
      const int size = std::min(chunk, context_ - begin);
      step_.Clear();
      step_.AddPiece(
          std::span(prompt).subspan(static_cast<size_t>(begin), static_cast<size_t>(size)), begin,
          row.pages);
      backend_->Begin(step_.batch());
      backend_->RunLayers(0, backend_->model().n_layers);
    }
  }
  sampled_.resize(rows_.size());
  return absl::OkStatus();
}

// Another text, of a grammar drawn at random.
void GrammarSteps::BeginText(Row* row) {
  row->constrained.reset();
  row->params.seed = random_();
  row->params.grammar.kind = GrammarKind::kJsonObject;  // there is one; which, the matcher knows
  row->constrained = std::make_unique<SequenceSampling>(
      row->params, std::span<const int32_t>(), std::span<const int32_t>(), 0,
      grammars_[random_() % grammars_.size()].get());
}

// Every step is that of the position after the context, so that all do the same work. What a worker
// does between its steps (EngineSteps::Run) is counted too.
double GrammarSteps::RunStep(size_t n_rows, bool is_constrained) {
  std::vector<SequenceSampling*> sequences;
  std::vector<SampleRow> rows;
  const auto begin = std::chrono::steady_clock::now();
  step_.Clear();
  for (size_t i = 0; i < n_rows; ++i) {
    Row& row = *rows_[i];
    step_.WantLogits(step_.AddPiece(std::span(&row.token, 1), context_, row.pages));
    if (is_constrained) sequences.push_back(row.constrained.get());
  }
  backend_->Begin(step_.batch());
  masks_.Start(sequences);
  backend_->RunLayers(0, backend_->model().n_layers);
  masks_.Wait();
  for (size_t i = 0; i < n_rows; ++i) {
    const SequenceSampling* sampling =
        is_constrained ? rows_[i]->constrained.get() : rows_[i]->free.get();
    rows.push_back({backend_->logits(static_cast<int>(i)), sampling,
                    context_ + 1 + static_cast<int64_t>(random_() % 1'000'000)});
  }
  sampler_.SampleRows(rows, std::span(sampled_).first(n_rows));
  for (size_t i = 0; is_constrained && i < n_rows; ++i)
    rows_[i]->constrained->Push(sampled_[i].token);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  for (size_t i = 0; i < n_rows; ++i) {
    Row& row = *rows_[i];
    row.token = sampled_[i].token;
    if (is_constrained && (row.token == end_token_ || !row.constrained->status().ok() ||
                           row.constrained->n_generated() >= kMaxText))
      BeginText(&row);
  }
  return took.count();
}

absl::StatusOr<GrammarSteps::Times> GrammarSteps::Run(int n) {
  if (n < 1 || n > 100'000)
    return absl::InvalidArgumentError("bench grammar: --steps must be from 1 to 100000");
  for (const bool is_constrained : {false, true}) RunStep(rows_.size(), is_constrained);
  Times times;
  for (int i = 0; i < n; ++i) {
    // Either kind comes first as often.
    for (const bool is_constrained : {i % 2 == 0, i % 2 != 0})
      (is_constrained ? times.constrained : times.all_rows)
          .push_back(RunStep(rows_.size(), is_constrained));
    times.one_row.push_back(RunStep(1, false));
  }
  return times;
}

}  // namespace baton
