#include "prefill_worker/prompt_scores.h"

#include <algorithm>
#include <span>
#include <utility>

namespace baton {

std::vector<PromptLogprobs> ScorePrompt(const Prompt& prompt, const ScoredRows& rows,
                                        Backend* backend, Sampler* sampler) {
  static_assert(Backend::kScoredAtOnce <= PromptLogprobs::kMaxTokens);
  const PrefillRequest& request = prompt.request;
  const int32_t vocab = backend->model().vocab, given_end = request.sampling.vocab_end;
  const auto end_id = static_cast<size_t>(given_end > 0 ? std::min(given_end, vocab) : vocab);
  const int32_t end = std::min(rows.end, prompt.size() - 1);
  std::vector<PromptLogprobs> told;
  for (int32_t from = rows.begin; from < end; from += Backend::kScoredAtOnce) {
    const int32_t n = std::min(Backend::kScoredAtOnce, end - from);
    const int first = rows.first + from - rows.begin;
    PromptLogprobs message{
        .request_id = request.request_id, .epoch = request.epoch, .position = from + 1};
    message.tokens.resize(static_cast<size_t>(n));
    sampler->ScoreRows(backend->ScoredLogits(first, first + n),
                       std::span(request.tokens).subspan(static_cast<size_t>(from) + 1, n),
                       request.prompt_logprobs, end_id, message.tokens);
    told.push_back(std::move(message));
  }
  return told;
}

}  // namespace baton
