// Log-probabilities of a prompt's tokens, as an attempt tells them chunk by chunk before its first
// token. Router thread.
#pragma once

#include <algorithm>

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

class ScoredPrompt {
 public:
  // An attempt tells of n_tokens (0: none were asked for), each with at most `top` others.
  ScoredPrompt(int32_t n_tokens, int32_t top)
      : n_tokens_(static_cast<size_t>(n_tokens)), max_top_(static_cast<size_t>(std::max(top, 0))) {}
  // Error: the worker tells what comes at another place, or at none (protocol violation).
  absl::Status Add(const PromptLogprobs& told);
  absl::Status CheckWhole() const;  // error: some are missing
  std::vector<PromptLogprob> Take();

 private:
  size_t n_tokens_, max_top_;
  std::vector<PromptLogprob> tokens_;
};

}  // namespace baton
