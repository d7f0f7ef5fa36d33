#include "common/request_limits.h"

#include <limits>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

using Limits = RequestLimits;

absl::Status CheckCount(const FieldLimit& limit, size_t count) {
  return CheckLimit(limit, static_cast<double>(count));
}

absl::Status CheckIds(const FieldLimit& limit, std::span<const int32_t> ids) {
  RETURN_IF_ERROR(CheckCount(limit, ids.size()));
  for (const int32_t id : ids)
    if (id < 0)
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: token id %d is negative", limit.field, id));
  return absl::OkStatus();
}

// before: the token of the entry before, -1 for the first.
absl::Status CheckAscends(const FieldLimit& limit, int32_t before, int32_t token) {
  if (token > before) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: token %d after %d, tokens must ascend, each once", limit.field, token, before));
}

absl::Status CheckLogitBias(std::span<const LogitBias> biases) {
  RETURN_IF_ERROR(CheckCount(Limits::kLogitBiases, biases.size()));
  int32_t before = -1;
  for (const auto& [token, bias] : biases) {
    RETURN_IF_ERROR(CheckAscends(Limits::kLogitBias, std::exchange(before, token), token));
    if (bias != -std::numeric_limits<float>::infinity())
      RETURN_IF_ERROR(CheckLimit(Limits::kLogitBias, bias));
  }
  return absl::OkStatus();
}

absl::Status CheckAllowedTokens(std::span<const int32_t> tokens) {
  RETURN_IF_ERROR(CheckCount(Limits::kAllowedTokens, tokens.size()));
  int32_t before = -1;
  for (const int32_t token : tokens)
    RETURN_IF_ERROR(CheckAscends(Limits::kAllowedTokens, std::exchange(before, token), token));
  return absl::OkStatus();
}

// Whether the text is a grammar is for its compiler to say.
absl::Status CheckGrammar(const GrammarSpec& grammar) {
  RETURN_IF_ERROR(CheckLimit(Limits::kGrammarKind, static_cast<double>(grammar.kind)));
  return CheckCount(Limits::kGrammarBytes, grammar.text.size());
}

}  // namespace

absl::Status CheckLimit(const FieldLimit& limit, double value) {
  if (value >= limit.min && value <= limit.max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %.10g, must be from %.10g to %.10g",
                                                    limit.field, value, limit.min, limit.max));
}

absl::Status CheckSampling(const SamplingParams& params) {
  RETURN_IF_ERROR(CheckLimit(Limits::kTemperature, params.temperature));
  RETURN_IF_ERROR(CheckLimit(Limits::kTopP, params.top_p));
  RETURN_IF_ERROR(CheckLimit(Limits::kTopK, params.top_k));
  RETURN_IF_ERROR(CheckLimit(Limits::kMinP, params.min_p));
  RETURN_IF_ERROR(CheckLimit(Limits::kPresencePenalty, params.presence_penalty));
  RETURN_IF_ERROR(CheckLimit(Limits::kFrequencyPenalty, params.frequency_penalty));
  RETURN_IF_ERROR(CheckLimit(Limits::kRepetitionPenalty, params.repetition_penalty));
  RETURN_IF_ERROR(CheckLimit(Limits::kMinTokens, params.min_tokens));
  RETURN_IF_ERROR(CheckLogitBias(params.logit_bias));
  RETURN_IF_ERROR(CheckAllowedTokens(params.allowed_tokens));
  RETURN_IF_ERROR(CheckCount(Limits::kBadWords, params.bad_words.size()));
  for (const std::vector<int32_t>& word : params.bad_words)
    RETURN_IF_ERROR(CheckIds(Limits::kBadWordTokens, word));
  RETURN_IF_ERROR(CheckGrammar(params.grammar));
  RETURN_IF_ERROR(CheckLimit(Limits::kReasoningTokens, params.reasoning.max_tokens));
  RETURN_IF_ERROR(CheckLimit(Limits::kReasoningMarker, params.reasoning.begin));
  RETURN_IF_ERROR(CheckLimit(Limits::kReasoningMarker, params.reasoning.end));
  RETURN_IF_ERROR(CheckLimit(Limits::kVocabEnd, params.vocab_end));
  RETURN_IF_ERROR(CheckLimit(Limits::kTopLogprobs, params.top_logprobs));
  return CheckIds(Limits::kLogprobTokens, params.logprob_tokens);
}

}  // namespace baton
