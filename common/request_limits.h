// Limits of one request: the single table that the API's validator, Router::Submit and the codec of
// the control wire check against, so that no request passes one check and fails a later one.
// Constants and pure functions: any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "common/sampling_params.h"
#include "common/status.h"

namespace baton {

// Bounds of a number in a request, or of a list's length; both bounds are allowed values.
struct FieldLimit {
  const char* field;
  double min, max;  // a double holds each bound below exactly
};

struct RequestLimits {
  // Total of prompt tokens and tokens to come. Also bounds positions, and the prompts of later
  // attempts, which begin with the tokens so far. A model with a longer context is served up to
  // this limit.
  static constexpr int32_t kContextTokens = 4 << 20;

  // Bounds of the API alone: their fields never reach the router as such.
  static constexpr FieldLimit kChoices{"n", 1, 128};  // server.max_choices may be lower
  static constexpr FieldLimit kPrompts{"prompts of a request", 1, 16};
  static constexpr FieldLimit kStreamInterval{"stream_interval", 1, 1024};
  static constexpr FieldLimit kBadWordBytes{"bytes of a bad word", 1, 256};

  static constexpr FieldLimit kTokenId{"token id", 0, std::numeric_limits<int32_t>::max()};
  static constexpr FieldLimit kPromptTokens{"tokens of the prompt", 1, kContextTokens - 1};
  static constexpr FieldLimit kMaxTokens{"max_tokens", 1, kContextTokens - 1};
  static constexpr FieldLimit kContext{"prompt and max_tokens", 2, kContextTokens};
  static constexpr FieldLimit kTemperature{"temperature", 0, 2};
  static constexpr FieldLimit kTopP{"top_p", 1e-6f, 1};  // the API raises smaller values except 0
  static constexpr FieldLimit kTopK{"top_k", -1, std::numeric_limits<int32_t>::max()};
  // Lists of distinct entries: the client's, the model's, and both together.
  static constexpr FieldLimit kStopTokenIds{"stop_token_ids", 0, 1024};
  static constexpr FieldLimit kEosTokens{"eos tokens of the model", 0, 64};
  static constexpr FieldLimit kStopTokens{"stop tokens", 0, kStopTokenIds.max + kEosTokens.max};

  static constexpr FieldLimit kMinP{"min_p", 0, 1};
  static constexpr FieldLimit kPresencePenalty{"presence_penalty", -2, 2};
  static constexpr FieldLimit kFrequencyPenalty{"frequency_penalty", -2, 2};
  // A penalty so small that it counts as 0 would make NaN of a logit.
  static constexpr FieldLimit kRepetitionPenalty{"repetition_penalty", 1e-6f, 2};
  static constexpr FieldLimit kMinTokens{"min_tokens", 0, kContextTokens - 1};
  static constexpr FieldLimit kLogitBiases{"entries of logit_bias", 0, 1024};
  static constexpr FieldLimit kLogitBias{"logit_bias", -100, 100};  // or -infinity
  static constexpr FieldLimit kAllowedTokens{"allowed_token_ids", 0, 65536};
  static constexpr FieldLimit kBadWords{"bad_words", 0, 1024};
  static constexpr FieldLimit kBadWordTokens{"tokens of a bad word", 1, 64};
  static constexpr FieldLimit kGrammarKind{"kind of grammar", 0,
                                           static_cast<double>(kLastGrammarKind)};
  static constexpr FieldLimit kGrammarBytes{"bytes of a grammar", 0, kMaxGrammarBytes};
  static constexpr FieldLimit kReasoningTokens{"thinking_token_budget", 0, kContextTokens - 1};
  static constexpr FieldLimit kReasoningMarker{"token of a marker of reasoning", -1, kTokenId.max};
  static constexpr FieldLimit kVocabEnd{"end of the vocabulary", 0,
                                        std::numeric_limits<int32_t>::max()};
  static constexpr FieldLimit kTopLogprobs{"top_logprobs", -1, 20};
  // -1: none is asked for. Entries: the own one and the most probable ones of each token, summed
  // over the choices of a request, which bounds what the router keeps until the first token.
  static constexpr FieldLimit kPromptLogprobs{"prompt_logprobs", -1, 20};
  static constexpr FieldLimit kPromptLogprobEntries{"log-probabilities of the prompt", 0, 1 << 18};
  static constexpr FieldLimit kLogprobTokens{"logprob_token_ids", 0, 128};
  // Log-probabilities beside a token.
  static constexpr FieldLimit kTokenLogprobs{"logprobs of a token", 0,
                                             kTopLogprobs.max + kLogprobTokens.max};

  static constexpr const FieldLimit* kAll[] = {&kTokenId,
                                               &kPromptTokens,
                                               &kMaxTokens,
                                               &kContext,
                                               &kTemperature,
                                               &kTopP,
                                               &kTopK,
                                               &kEosTokens,
                                               &kStopTokens,
                                               &kStopTokenIds,
                                               &kMinP,
                                               &kPresencePenalty,
                                               &kFrequencyPenalty,
                                               &kRepetitionPenalty,
                                               &kMinTokens,
                                               &kLogitBiases,
                                               &kLogitBias,
                                               &kAllowedTokens,
                                               &kBadWords,
                                               &kBadWordTokens,
                                               &kGrammarKind,
                                               &kGrammarBytes,
                                               &kReasoningTokens,
                                               &kReasoningMarker,
                                               &kVocabEnd,
                                               &kTopLogprobs,
                                               &kPromptLogprobs,
                                               &kPromptLogprobEntries,
                                               &kLogprobTokens,
                                               &kTokenLogprobs};
};

// InvalidArgument: names the field, the value and its bounds. NaN is out of bounds.
absl::Status CheckLimit(const FieldLimit& limit, double value);
// Checks every field of the parameters; lists of tokens that ascend, each token once, too.
absl::Status CheckSampling(const SamplingParams& params);

}  // namespace baton
