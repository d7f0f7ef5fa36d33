// Parameters of a request for the choice of its tokens, and for what is reported of them. Plain
// values: the same struct in the router, on the wire (proto converts it), in both workers and in
// the sampler. A token is a function of (prompt, tokens so far, these parameters).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/grammar_spec.h"

namespace baton {

// A value added to the logit of one token.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;  // -infinity: the token is never drawn
  bool operator==(const LogitBias&) const = default;
};

// Bounds the reasoning that an answer begins with: after so many tokens of it the token that closes
// it follows, whatever the logits say.
struct ReasoningBudget {
  int32_t max_tokens = 0;  // after the one that opens it
  int32_t begin = -1;      // opens reasoning if it is the first one; -1: the prompt has opened it
  int32_t end = -1;        // closes it; -1: there is no bound
  bool is_set() const { return end >= 0; }
  bool operator==(const ReasoningBudget&) const = default;
};

struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy (argmax, ties to the lowest token id)
  int32_t top_k = 0;         // <= 0 = off
  float top_p = 1.0f;        // (0, 1]; 1 = off
  float min_p = 0;           // [0, 1]: min share of the top token's probability; 0 = off
  uint64_t seed = 0;         // always set by the router: a request without a seed gets one there

  // Over tokens generated so far: presence once per token, frequency per occurrence. 0 = off.
  float presence_penalty = 0, frequency_penalty = 0;
  float repetition_penalty = 1;  // over prompt and generated tokens; 1 = off
  int32_t min_tokens = 0;        // generated tokens before the first stop token may be drawn

  std::vector<LogitBias> logit_bias{};            // ascending by token, each token once
  std::vector<int32_t> allowed_tokens{};          // ascending; empty: all
  std::vector<std::vector<int32_t>> bad_words{};  // token sequences that are never completed
  // The text that the tokens spell is one of this grammar's. Changes after all of the above: a bias
  // brings no token back.
  GrammarSpec grammar{};
  int32_t vocab_end = 0;  // ids from here on have no token and are never drawn; 0: all have one

  // Forces a token after all of the above: no bias or mask keeps it from being drawn, and a grammar
  // only delays it. Where the token stands in no text of the grammar, as in the middle of a
  // character, the next one is drawn as if the budget were larger.
  ReasoningBudget reasoning{};

  // Reported with each token: the log-probabilities of the most probable tokens (-1: none is asked
  // for, 0: the drawn token's alone) and of these tokens.
  int32_t top_logprobs = -1;
  std::vector<int32_t> logprob_tokens{};

  bool operator==(const SamplingParams&) const = default;
};

// Log-probability of a token under the softmax of the unchanged logits.
struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};

// Log-probability and rank of a prompt token, under the logits of the position before it.
struct PromptLogprob {
  float logprob = 0;
  int32_t rank = 0;  // its place by descending logit, equal ones by ascending id; 1: top
  std::vector<TokenLogprob> top{};  // as many of the most probable tokens as were asked for
  bool operator==(const PromptLogprob&) const = default;
};

}  // namespace baton
