// Log-probabilities of a prompt's tokens, made while the prompt is computed: the logits of a row
// score the token at the next position. A few rows at a time, so that memory does not grow with the
// chunk. Engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sampling/sampler.h"
#include "engine/step/backend.h"
#include "prefill_worker/prompt.h"
#include "proto/messages.h"

namespace baton {

// A computed chunk of a prompt, positions [begin, end); first: index of its first row among the
// step's scored rows.
struct ScoredRows {
  int32_t begin = 0, end = 0;
  int first = 0;
};

// Returns the messages about the tokens that follow the rows, in order: none for the prompt's last
// row, whose logits are for the first token to be drawn.
std::vector<PromptLogprobs> ScorePrompt(const Prompt& prompt, const ScoredRows& rows,
                                        Backend* backend, Sampler* sampler);

}  // namespace baton
