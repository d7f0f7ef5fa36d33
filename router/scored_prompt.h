// Log-probabilities of a prompt's tokens, as an attempt tells them chunk by chunk before its first
// token. A later attempt begins anew. Router thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "proto/messages.h"

namespace baton {

class ScoredPrompt {
 public:
  // An attempt tells of n_tokens (0: none were asked for), each with at most `top` others.
  void Begin(size_t n_tokens, int32_t top);
  // Error: the worker tells what comes at another place, or at none (protocol violation).
  absl::Status Add(const PromptLogprobs& told);
  absl::Status CheckWhole() const;  // error: some are missing
  std::vector<PromptLogprob> Take();

 private:
  size_t n_tokens_ = 0, max_top_ = 0;
  std::vector<PromptLogprob> tokens_;
};

}  // namespace baton
