#include "router/scored_prompt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {

absl::Status ScoredPrompt::Add(const PromptLogprobs& told) {
  const bool is_next = told.position == static_cast<int32_t>(tokens_.size()) + 1 &&
                       told.tokens.size() <= n_tokens_ - tokens_.size();
  const bool fits =
      std::all_of(told.tokens.begin(), told.tokens.end(),
                  [&](const PromptLogprob& token) { return token.top.size() <= max_top_; });
  if (!is_next || !fits)
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d log-probabilities of the prompt from position %d on, of which %d of %d were told",
        told.tokens.size(), told.position, tokens_.size(), n_tokens_));
  tokens_.insert(tokens_.end(), told.tokens.begin(), told.tokens.end());
  return absl::OkStatus();
}

absl::Status ScoredPrompt::CheckWhole() const {
  if (tokens_.size() == n_tokens_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "a first token after %d of %d log-probabilities of the prompt", tokens_.size(), n_tokens_));
}

std::vector<PromptLogprob> ScoredPrompt::Take() {
  n_tokens_ = 0;
  return std::exchange(tokens_, {});
}

}  // namespace baton
