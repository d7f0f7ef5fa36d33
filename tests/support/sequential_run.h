// The simplest way to serve a request: alone, the prompt in one piece, then one token per step.
// Every schedule must reproduce its tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/kv/kv_pool.h"
#include "engine/sampling/row_logprobs.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/sequence_sampling.h"
#include "engine/step/backend.h"
#include "engine/step/step.h"
#include "engine/threads/mxcsr.h"

namespace baton {

struct SequentialTokens {
  absl::Status status;  // of the grammar: after these tokens it broke
  std::vector<int32_t> tokens;
  std::vector<uint64_t> digests;                  // digest of each token's logits row, not chained
  std::vector<float> logprobs;                    // of each token
  std::vector<std::vector<TokenLogprob>> beside;  // SampledToken::logprobs of each token
};

// Log-probabilities of all tokens of a prompt but the first, by a step for each token: no chunk, no
// scored row, and ranks by counting. top as GenerateRequest::prompt_logprobs, vocab_end as
// SamplingParams::vocab_end.
inline std::vector<PromptLogprob> SequentialScores(Backend* backend,
                                                   const std::vector<int32_t>& prompt, int top,
                                                   int max_tokens = 1, int32_t vocab_end = 0) {
  const int n = static_cast<int>(prompt.size());
  const KvLayout& layout = backend->kv_layout();
  auto pool = KvPool::Create(layout, layout.PagesFor(n));
  BATON_CHECK(pool.ok());
  backend->SetPages((*pool)->pages());
  std::vector<int32_t> pages;
  BATON_CHECK((*pool)->Take(layout.PagesFor(n), &pages));
  const NumericsMxcsrScope mxcsr;
  StepBuilder builder;
  std::vector<PromptLogprob> scores;
  for (int at = 0; at + 1 < n; ++at) {
    builder.Clear();
    builder.AddPiece(std::span(prompt).subspan(static_cast<size_t>(at), 1), at, pages,
                     backend->model().rope.RangeOf(int64_t{n} + max_tokens));
    builder.WantLogits(0);
    backend->Begin(builder.batch());
    backend->RunLayers(0, backend->model().n_layers);
    const std::span<const float> logits = backend->logits(0);
    const int32_t token = prompt[static_cast<size_t>(at) + 1];
    const auto vocab = static_cast<int32_t>(logits.size());
    const int32_t end = vocab_end > 0 ? std::min(vocab, vocab_end) : vocab;
    const RowLogprobs row(logits);
    PromptLogprob& score = scores.emplace_back();
    score.logprob = row.Of(token);
    score.rank = 1;
    for (int32_t other = 0; other < end; ++other) {
      const float gap = logits[static_cast<size_t>(other)] - logits[static_cast<size_t>(token)];
      score.rank += gap > 0 || (gap == 0 && other < token);
    }
    row.AppendTop(top, static_cast<size_t>(end), &score.top);
  }
  (*pool)->Give(pages);
  return scores;
}

inline SequentialTokens SequentialRun(Backend* backend, KvPool* pool,
                                      const std::vector<int32_t>& prompt, int max_tokens,
                                      const SamplingParams& sampling,
                                      const std::vector<int32_t>& stop_tokens = {},
                                      SharedGrammar grammar = nullptr) {
  backend->SetPages(pool->pages());
  std::vector<int32_t> pages;
  BATON_CHECK(
      pool->Take(pool->layout().PagesFor(static_cast<int>(prompt.size()) + max_tokens), &pages));
  Sampler sampler;
  SequenceSampling state(sampling, stop_tokens, prompt, 0, grammar.get());
  StepBuilder builder;
  SequentialTokens out;
  std::vector<int32_t> input = prompt;
  int position = 0;
  while (static_cast<int>(out.tokens.size()) < max_tokens) {
    builder.Clear();
    const int n = static_cast<int>(input.size());
    const RopeRange rope =
        backend->model().rope.RangeOf(static_cast<int64_t>(prompt.size()) + max_tokens);
    const int row = builder.AddPiece(input, position, pages, rope);
    builder.WantLogits(row + n - 1);
    backend->Begin(builder.batch());
    backend->RunLayers(0, backend->model().n_layers);
    position += n;
    state.MakeMask();
    SampledToken sampled = sampler.Sample(backend->logits(0), state, position);
    state.Push(sampled.token);
    out.status = state.status();
    if (!out.status.ok()) break;
    out.tokens.push_back(sampled.token);
    out.logprobs.push_back(sampled.logprob);
    out.beside.push_back(std::move(sampled.logprobs));
    out.digests.push_back(LogitsDigest(backend->logits(0), 0));
    input = {out.tokens.back()};
    if (std::find(stop_tokens.begin(), stop_tokens.end(), input[0]) != stop_tokens.end()) break;
  }
  pool->Give(pages);
  return out;
}

inline SequentialTokens SequentialRun(Backend* backend, const std::vector<int32_t>& prompt,
                                      int max_tokens, const SamplingParams& sampling,
                                      const std::vector<int32_t>& stop_tokens = {},
                                      SharedGrammar grammar = nullptr) {
  const KvLayout& layout = backend->kv_layout();
  auto pool = KvPool::Create(layout, layout.PagesFor(static_cast<int>(prompt.size()) + max_tokens));
  BATON_CHECK(pool.ok());
  return SequentialRun(backend, pool->get(), prompt, max_tokens, sampling, stop_tokens,
                       std::move(grammar));
}

}  // namespace baton
