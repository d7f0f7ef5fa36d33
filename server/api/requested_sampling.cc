#include "server/api/requested_sampling.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/request_limits.h"

namespace baton {
namespace {

using Problem = std::optional<ApiError>;

Problem CheckTokenId(const ServedModel& model, int32_t id, const std::string& path) {
  if (id >= 0 && id < model.vocab) return std::nullopt;
  return InvalidField(path, absl::StrCat(path, " must be a token id from 0 to ", model.vocab - 1,
                                         "; got ", id, "."));
}

Problem WithoutTokenizer(const ServedModel& model, const std::string& path) {
  return Unsupported(path, absl::StrCat("The model `", model.name, "` has no tokenizer."));
}

// Ids that can be drawn: inside the logits, and with a token.
Problem CheckDrawn(const ServedModel& model, int32_t id, const std::string& path) {
  if (auto problem = CheckTokenId(model, id, path)) return problem;
  if (model.tokenizer != nullptr && !model.tokenizer->IsToken(id)) {
    return InvalidField(path, absl::StrCat(path, ": the id ", id, " has no token."));
  }
  return std::nullopt;
}

Problem CheckDrawn(const ServedModel& model, const std::vector<int32_t>& ids,
                   const std::string& param) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (auto problem = CheckDrawn(model, ids[i], absl::StrCat(param, "[", i, "]"))) return problem;
  }
  return std::nullopt;
}

// Refuses by the client's name what the router would refuse by its own.
Problem CheckCount(const FieldLimit& limit, const std::string& path, size_t n, const char* of) {
  if (CheckLimit(limit, static_cast<double>(n)).ok()) return std::nullopt;
  return TooMany(path, static_cast<int64_t>(limit.max), of, n);
}

// The client's biases, and minus infinity for ids without a token below vocab_end.
Problem ReadBiases(const ServedModel& model, const ApiRequest& request, SamplingParams* sampling) {
  for (const LogitBias& given : request.logit_bias) {
    if (auto problem = CheckDrawn(model, given.token, absl::StrCat("logit_bias.", given.token)))
      return problem;
  }
  sampling->logit_bias = request.logit_bias;
  sampling->vocab_end = model.vocab_end;
  if (!request.allowed_token_ids.empty()) return std::nullopt;  // which has no id without a token
  for (const int32_t id : model.ids_without_token) {
    sampling->logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  std::sort(sampling->logit_bias.begin(), sampling->logit_bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  return CheckCount(RequestLimits::kLogitBiases, "logit_bias", sampling->logit_bias.size(),
                    "entries, with those of the model's ids without a token");
}

// A word is kept out at the start of a text and after a space: where the space makes another first
// token and as many tokens, that sequence is kept out too. The rule is vLLM's.
Problem ReadBadWords(const ServedModel& model, const ApiRequest& request,
                     SamplingParams* sampling) {
  if (request.bad_words.empty()) return std::nullopt;
  if (model.tokenizer == nullptr) return WithoutTokenizer(model, "bad_words");
  for (size_t i = 0; i < request.bad_words.size(); ++i) {
    const std::string path = absl::StrCat("bad_words[", i, "]");
    const std::string word(absl::StripLeadingAsciiWhitespace(request.bad_words[i]));
    auto plain = model.tokenizer->Encode(word, false);
    if (!plain.ok()) return InvalidField(path, std::string(plain.status().message()));
    if (plain->empty()) return InvalidField(path, absl::StrCat(path, " has no tokens."));
    if (auto problem = CheckCount(RequestLimits::kBadWordTokens, path, plain->size(), "tokens"))
      return problem;
    auto spaced = model.tokenizer->Encode(absl::StrCat(" ", word), false);
    if (!spaced.ok()) return InvalidField(path, std::string(spaced.status().message()));
    const bool differs = spaced->size() == plain->size() && spaced->front() != plain->front();
    sampling->bad_words.push_back(*std::move(plain));
    if (differs) sampling->bad_words.push_back(*std::move(spaced));
  }
  return CheckCount(RequestLimits::kBadWords, "bad_words", sampling->bad_words.size(),
                    "words, counted with and without a space before them");
}

// Choices that are ranked need the log-probability of each drawn token.
int32_t TopLogprobs(const ApiRequest& request) {
  if (request.top_logprobs) return static_cast<int32_t>(*request.top_logprobs);
  const bool ranked = request.best_of.value_or(0) > request.n;
  return ranked ? 0 : -1;
}

}  // namespace

std::optional<ApiError> ReadSampling(const ServedModel& model, const ApiRequest& request,
                                     SamplingParams* sampling) {
  const auto number = [](const std::optional<double>& given, double otherwise) {
    return static_cast<float>(given.value_or(otherwise));
  };
  sampling->temperature = number(request.temperature, model.temperature);
  // Smaller values mean the same as the smallest one, and a float must not round to the forbidden
  // 0.
  sampling->top_p =
      std::max(number(request.top_p, model.top_p), static_cast<float>(RequestLimits::kTopP.min));
  sampling->top_k = static_cast<int32_t>(request.top_k.value_or(model.top_k));
  sampling->min_p = number(request.min_p, model.min_p);
  sampling->presence_penalty = number(request.presence_penalty, 0);
  sampling->frequency_penalty = number(request.frequency_penalty, 0);
  sampling->repetition_penalty = number(request.repetition_penalty, model.repetition_penalty);
  sampling->min_tokens = static_cast<int32_t>(request.min_tokens.value_or(0));
  sampling->top_logprobs = TopLogprobs(request);
  if (auto problem = CheckDrawn(model, request.allowed_token_ids, "allowed_token_ids"))
    return problem;
  sampling->allowed_tokens = request.allowed_token_ids;
  if (auto problem = CheckTokenIds(model, request.logprob_token_ids, "logprob_token_ids"))
    return problem;
  sampling->logprob_tokens = request.logprob_token_ids;
  if (request.grammar.kind != GrammarKind::kNone && model.grammars == nullptr)
    return WithoutTokenizer(model, request.grammar_path);
  sampling->grammar = request.grammar;
  if (auto problem = ReadBiases(model, request, sampling)) return problem;
  return ReadBadWords(model, request, sampling);
}

std::optional<ApiError> CheckTokenIds(const ServedModel& model, const std::vector<int32_t>& ids,
                                      const std::string& param) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (auto problem = CheckTokenId(model, ids[i], absl::StrCat(param, "[", i, "]")))
      return problem;
  }
  return std::nullopt;
}

}  // namespace baton
