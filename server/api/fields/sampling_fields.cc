// Rows of the choice of tokens: how many choices, which tokens, and when they end.
#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"
#include "text/stop_matcher.h"

namespace baton {
namespace {

namespace json = boost::json;
using Limits = RequestLimits;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

FieldProblem ParseN(const std::string& path, const json::value& value,
                    const RequestSettings& settings, ApiRequest* request) {
  return ReadInt(path, value, static_cast<int64_t>(Limits::kChoices.min), settings.max_choices,
                 &request->n);
}

// 0 passes where the answer tells of the prompt (CheckTogether).
FieldProblem ParseMaxTokens(const std::string& path, const json::value& value,
                            const RequestSettings&, ApiRequest* request) {
  int64_t n = 0;
  if (auto problem = ReadInt(path, value, 0, kMaxInt, &n)) return problem;
  request->max_tokens = n;
  return std::nullopt;
}

// 0 stands for absent.
FieldProblem ParseBestOf(const std::string& path, const json::value& value,
                         const RequestSettings& settings, ApiRequest* request) {
  int64_t best_of = 0;
  if (auto problem = ReadInt(path, value, 0, settings.max_choices, &best_of)) return problem;
  if (best_of > 0) request->best_of = best_of;
  return std::nullopt;
}

// The token id that a key of logit_bias spells.
std::optional<int32_t> TokenOfKey(std::string_view key) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0) return std::nullopt;
  return id;
}

FieldProblem ParseLogitBias(const std::string& path, const json::value& value,
                            const RequestSettings&, ApiRequest* request) {
  if (value.is_array() && value.get_array().empty()) return std::nullopt;  // as llama.cpp
  const json::object* entries = value.if_object();
  if (entries == nullptr) return WrongType(path, value, "an object of token ids and numbers");
  constexpr auto kMaxEntries = static_cast<int64_t>(Limits::kLogitBiases.max);
  if (static_cast<int64_t>(entries->size()) > kMaxEntries)
    return TooMany(path, kMaxEntries, "entries", entries->size());
  std::vector<LogitBias> biases;
  for (const auto& entry : *entries) {
    const std::string key(entry.key().data(), entry.key().size());
    const std::string entry_path = absl::StrCat(path, ".", key);
    const auto token = TokenOfKey(key);
    if (!token) {
      return InvalidField(entry_path, absl::StrCat("Keys of ", path, " must be token ids; got ",
                                                   Shown(json::value(entry.key())), "."));
    }
    double bias = 0;
    if (auto problem = ReadNumber(entry_path, entry.value(), Limits::kLogitBias, false, &bias))
      return problem;
    biases.push_back({*token, static_cast<float>(bias)});
  }
  std::sort(biases.begin(), biases.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  const auto twice =
      std::adjacent_find(biases.begin(), biases.end(),
                         [](const LogitBias& a, const LogitBias& b) { return a.token == b.token; });
  if (twice != biases.end()) {  // "5" and "05"
    return InvalidField(absl::StrCat(path, ".", twice->token),
                        absl::StrCat(path, " names token ", twice->token, " twice."));
  }
  request->logit_bias = std::move(biases);
  return std::nullopt;
}

FieldProblem ParseAllowedTokens(const std::string& path, const json::value& value,
                                const RequestSettings&, ApiRequest* request) {
  if (value.is_array() && value.get_array().empty())
    return InvalidField(path, path + " must not be empty: no token could be drawn.");
  std::vector<int32_t>& ids = request->allowed_token_ids;
  auto problem = ReadDistinctIds(path, value, Limits::kAllowedTokens, &ids);
  std::sort(ids.begin(), ids.end());
  return problem;
}

FieldProblem ParseBadWords(const std::string& path, const json::value& value,
                           const RequestSettings&, ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of strings");
  return ReadStrings(path, value.get_array(), static_cast<size_t>(Limits::kBadWords.max),
                     static_cast<size_t>(Limits::kBadWordBytes.max), &request->bad_words);
}

FieldProblem ParseStop(const std::string& path, const json::value& value, const RequestSettings&,
                       ApiRequest* request) {
  if (value.is_array())
    return ReadStrings(path, value.get_array(), kMaxStopStrings, kMaxStopBytes, &request->stop);
  if (!value.is_string()) return WrongType(path, value, "a string or a list of strings");
  request->stop.assign(1, "");
  return ReadString(path, value, kMaxStopBytes, &request->stop.front());
}

FieldProblem ParseStopTokenIds(const std::string& path, const json::value& value,
                               const RequestSettings&, ApiRequest* request) {
  return ReadDistinctIds(path, value, Limits::kStopTokenIds, &request->stop_token_ids);
}

constexpr char kCountSchema[] = R"({"type":"integer","minimum":1,"maximum":128})";
constexpr char kMaxTokensSchema[] = R"({"type":"integer","minimum":0,"maximum":2147483647})";
constexpr char kMaxTokensGood[] = "[1,2147483647]";
constexpr char kMaxTokensBad[] = R"([-1,0,2147483648,"1",true,0.5])";
constexpr char kBestOfSchema[] = R"({"type":"integer","minimum":0,"maximum":128})";
constexpr char kBiasSchema[] =
    R"({"type":"object","maxProperties":1024,"propertyNames":{"pattern":"^[0-9]+$"},)"
    R"("additionalProperties":{"type":"number","minimum":-100,"maximum":100}})";
constexpr char kIdsSchema[] =
    R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":2147483647}})";
constexpr char kSomeIdsSchema[] =
    R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":2147483647}})";
constexpr char kWordsSchema[] = R"({"type":"array","items":{"type":"string","minLength":1}})";
constexpr char kStopSchema[] =
    R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","maxItems":16,)"
    R"("items":{"type":"string","minLength":1}}]})";

NumberRule Within(std::optional<double> ApiRequest::*field, const FieldLimit& limit) {
  return {field, limit};
}
IntRule Within(std::optional<int64_t> ApiRequest::*field, const FieldLimit& limit) {
  return {field, static_cast<int64_t>(limit.min), static_cast<int64_t>(limit.max)};
}

}  // namespace

std::span<const Field> SamplingFields() {
  static const std::vector<Field> kRows = {
      {"max_tokens", kAtGeneration,
       OwnRule{ParseMaxTokens, kMaxTokensSchema, kMaxTokensGood, kMaxTokensBad},
       "16 for prompts, the rest of the context for messages",
       "Tokens to generate at most; 0, only with echo or prompt_logprobs: the answer tells of the "
       "prompt alone"},
      {"n_predict", kAtGeneration,
       OwnRule{ParseMaxTokens, kMaxTokensSchema, kMaxTokensGood, kMaxTokensBad}, "",
       "max_tokens as llama.cpp spells it"},
      {"max_new_tokens", kAtGeneration,
       OwnRule{ParseMaxTokens, kMaxTokensSchema, kMaxTokensGood, kMaxTokensBad}, "",
       "max_tokens as Hugging Face spells it"},
      {"max_completion_tokens", kAtGeneration,
       OwnRule{ParseMaxTokens, kMaxTokensSchema, kMaxTokensGood, kMaxTokensBad}, "",
       "max_tokens by its newer name; wins over the others"},
      {"min_tokens", kAtOpenAi, Within(&ApiRequest::min_tokens, Limits::kMinTokens), "0",
       "Tokens generated before the first stop token may be drawn; at most max_tokens"},
      {"n", kAtGeneration, OwnRule{ParseN, kCountSchema, "[1,8]", R"([0,129,"2",1.5])"}, "1",
       "Choices per prompt, up to server.max_choices; choice i draws from (seed, i)"},
      {"best_of", kAtCompletions, OwnRule{ParseBestOf, kBestOfSchema, "[0,1,8]", R"([-1,129,"2"])"},
       "n",
       "Choices generated per prompt, of which the n with the best mean logprob are told; 0: "
       "absent. Not streamed"},
      {"best_of", kAtChat, RefusedRule{"it belongs to /v1/completions", {"0", "1"}}, "", ""},
      {"temperature", kAtOpenAi, Within(&ApiRequest::temperature, Limits::kTemperature),
       "of generation_config.json, else 1", "0: always the most probable token"},
      {"top_p", kAtOpenAi, NumberRule{&ApiRequest::top_p, {"top_p", 0, Limits::kTopP.max}, true},
       "of generation_config.json, else 1",
       "Draws from the most probable tokens that together have this share"},
      {"top_k", kAtOpenAi, Within(&ApiRequest::top_k, Limits::kTopK),
       "of generation_config.json, else 0",
       "Draws from so many most probable tokens; 0 or -1: from all"},
      {"min_p", kAtOpenAi, Within(&ApiRequest::min_p, Limits::kMinP),
       "of generation_config.json, else 0",
       "Draws from tokens with at least this share of the top token's probability"},
      {"seed", kAtOpenAi,
       IntRule{&ApiRequest::seed, std::numeric_limits<int64_t>::min(),
               std::numeric_limits<int64_t>::max()},
       "random", "Equal requests with equal seeds get equal tokens"},
      {"presence_penalty", kAtOpenAi,
       Within(&ApiRequest::presence_penalty, Limits::kPresencePenalty), "0",
       "Taken from the logit of each token that was generated"},
      {"frequency_penalty", kAtOpenAi,
       Within(&ApiRequest::frequency_penalty, Limits::kFrequencyPenalty), "0",
       "Taken from the logit of a token for each time that it was generated"},
      {"repeat_penalty", kAtOpenAi,
       NumberRule{&ApiRequest::repetition_penalty, Limits::kRepetitionPenalty}, "",
       "repetition_penalty as llama.cpp spells it"},
      {"repetition_penalty", kAtOpenAi,
       Within(&ApiRequest::repetition_penalty, Limits::kRepetitionPenalty),
       "of generation_config.json, else 1",
       "Makes tokens of the prompt and of the answer so far less probable"},
      {"logit_bias", kAtOpenAi,
       OwnRule{ParseLogitBias, kBiasSchema, R"([{},{"5":-100},{"5":100,"7":0.5}])",
               R"([7,[1],{"a":1},{"-1":1},{"5":100.5},{"5":-101},{"5":"a"},{"5":1,"05":1}])"},
       "", "Added to the logits of tokens, by their ids as strings"},
      {"allowed_token_ids", kAtOpenAi,
       OwnRule{ParseAllowedTokens, kSomeIdsSchema, "[[1],[0,2147483647]]", R"([7,[],[-1],["a"]])"},
       "", "Only these tokens are drawn"},
      {"bad_words", kAtOpenAi,
       OwnRule{ParseBadWords, kWordsSchema, R"([[],["a","b c"]])", R"(["a",[""],[7]])"}, "",
       "Words whose tokens are never drawn in a row to their end"},
      {"stop", kAtOpenAi,
       OwnRule{ParseStop, kStopSchema, R"(["a",[],["a","b"]])", R"([7,"",[""],[7],["\u0000"]])"},
       "", "Texts that end the answer; they are not part of it"},
      {"stop_token_ids", kAtOpenAi,
       OwnRule{ParseStopTokenIds, kIdsSchema, "[[],[1,2,1]]", R"([7,[-1],["a"]])"}, "",
       "Tokens that end the answer, beside the model's own"},
      {"ignore_eos", kAtOpenAi, BoolRule{&ApiRequest::ignore_eos}, "false",
       "The model's own end tokens do not end the answer"},
  };
  return kRows;
}

}  // namespace baton
