// Rows of the form of the answer: streaming, what is told beside the text.
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"
#include "server/api/generated_text.h"

namespace baton {
namespace {

namespace json = boost::json;
using Limits = RequestLimits;

constexpr auto kMaxLogprobs = static_cast<int64_t>(Limits::kTopLogprobs.max);

// Completions: how many tokens beside the drawn one. false, which is no number, means none.
FieldProblem ParseLogprobs(const std::string& path, const json::value& value,
                           const RequestSettings&, ApiRequest* request) {
  if (value.is_bool() && !value.get_bool()) return std::nullopt;
  int64_t n = 0;
  if (auto problem = ReadInt(path, value, 0, kMaxLogprobs, &n)) return problem;
  request->top_logprobs = n;
  return std::nullopt;
}

// Chat: whether; how many is told by n_probs before it, or top_logprobs after it.
FieldProblem ParseChatLogprobs(const std::string& path, const json::value& value,
                               const RequestSettings&, ApiRequest* request) {
  bool wanted = false;
  if (auto problem = ReadBool(path, value, &wanted)) return problem;
  if (wanted && !request->top_logprobs) request->top_logprobs = 0;
  return std::nullopt;
}

FieldProblem ParseTopLogprobs(const std::string& path, const json::value& value,
                              const RequestSettings&, ApiRequest* request) {
  int64_t n = 0;
  if (auto problem = ReadInt(path, value, 0, kMaxLogprobs, &n)) return problem;
  if (request->top_logprobs) request->top_logprobs = n;
  if (request->top_logprobs || n == 0) return std::nullopt;
  return InvalidField(path,
                      absl::StrCat(path, " is given without logprobs; set logprobs to true."));
}

// As llama.cpp: 0 means none.
FieldProblem ParseNProbs(const std::string& path, const json::value& value, const RequestSettings&,
                         ApiRequest* request) {
  int64_t n = 0;
  if (auto problem = ReadInt(path, value, 0, kMaxLogprobs, &n)) return problem;
  if (n > 0) request->top_logprobs = n;
  return std::nullopt;
}

// false means none, too.
FieldProblem ParsePromptLogprobs(const std::string& path, const json::value& value,
                                 const RequestSettings&, ApiRequest* request) {
  if (value.is_bool() && !value.get_bool()) return std::nullopt;
  int64_t n = 0;
  if (auto problem = ReadInt(path, value, 0, static_cast<int64_t>(Limits::kPromptLogprobs.max), &n))
    return problem;
  request->prompt_logprobs = n;
  return std::nullopt;
}

// Kept in the order of the request, each once.
FieldProblem ParseLogprobTokens(const std::string& path, const json::value& value,
                                const RequestSettings&, ApiRequest* request) {
  return ReadDistinctIds(path, value, Limits::kLogprobTokens, &request->logprob_token_ids);
}

FieldProblem ParseStreamOptions(const std::string& path, const json::value& value,
                                const RequestSettings&, ApiRequest* request) {
  const json::object* options = value.if_object();
  if (options == nullptr) return WrongType(path, value, "an object");
  const struct {
    const char* key;
    bool ApiRequest::*field;
  } kOptions[] = {{"include_usage", &ApiRequest::include_usage},
                  {"continuous_usage_stats", &ApiRequest::continuous_usage}};
  for (const auto& [key, field] : kOptions) {
    const json::value* option = options->if_contains(key);
    if (option == nullptr || option->is_null()) continue;
    if (auto problem = ReadBool(absl::StrCat(path, ".", key), *option, &(request->*field)))
      return problem;
  }
  request->continuous_usage = request->continuous_usage && request->include_usage;
  return std::nullopt;
}

FieldProblem ParseReasoningFormat(const std::string& path, const json::value& value,
                                  const RequestSettings&, ApiRequest* request) {
  static constexpr const char* kWanted = "none, auto or deepseek";
  if (!value.is_string()) return WrongType(path, value, kWanted);
  if (value != "none" && value != "auto" && value != "deepseek")
    return WrongValue(path, value, kWanted);
  request->separate_reasoning = value != "none";
  return std::nullopt;
}

// As OpenAI: up to 16 texts of up to 512 characters, under names of up to 64.
FieldProblem ReadMetadata(const std::string& path, const json::value& value, ApiRequest* request) {
  constexpr size_t kMaxPairs = 16, kMaxName = 64, kMaxText = 512;
  const json::object* pairs = value.if_object();
  if (pairs == nullptr) return WrongType(path, value, "an object");
  if (pairs->size() > kMaxPairs)
    return TooMany(path, static_cast<int64_t>(kMaxPairs), "entries", pairs->size());
  const auto is_longer = [](std::string_view text, size_t max) {
    return Characters(text) > static_cast<int64_t>(max);
  };
  for (const auto& [key, entry] : *pairs) {
    const std::string name(key.data(), key.size());
    if (is_longer(name, kMaxName))
      return InvalidField(
          path, absl::StrCat("Names in ", path, " may have at most ", kMaxName, " characters."));
    const std::string entry_path = absl::StrCat(path, ".", name);
    if (!entry.is_string()) return WrongType(entry_path, entry, "a string");
    if (is_longer(TextOf(entry.get_string()), kMaxText))
      return InvalidField(entry_path,
                          absl::StrCat(entry_path, " may have at most ", kMaxText, " characters."));
  }
  request->metadata = json::serialize(value);
  return std::nullopt;
}

constexpr char kCountSchema[] = R"({"type":"integer","minimum":0,"maximum":20})";
constexpr char kCountOrFalseSchema[] =
    R"({"anyOf":[{"type":"integer","minimum":0,"maximum":20},{"const":false}]})";
constexpr char kBoolSchema[] = R"({"type":"boolean"})";
constexpr char kIdsSchema[] =
    R"({"type":"array","maxItems":128,"items":{"type":"integer","minimum":0}})";
constexpr char kMetadataSchema[] =
    R"({"type":"object","maxProperties":16,"propertyNames":{"maxLength":64},)"
    R"("additionalProperties":{"type":"string","maxLength":512}})";
constexpr char kStreamOptionsSchema[] =
    R"({"type":"object","properties":{"include_usage":{"type":["boolean","null"]},)"
    R"("continuous_usage_stats":{"type":["boolean","null"]}}})";

}  // namespace

std::span<const Field> AnswerFields() {
  static const std::vector<Field> kRows = {
      {"stream", kAtOpenAi, BoolRule{&ApiRequest::stream}, "false",
       "The answer comes as server-sent events"},
      {"stream_options", kAtGeneration,
       OwnRule{ParseStreamOptions, kStreamOptionsSchema,
               R"([{},{"include_usage":true,"continuous_usage_stats":true}])",
               R"([true,{"include_usage":1}])"},
       "",
       "include_usage: an event with the usage ends the stream; continuous_usage_stats: with "
       "include_usage, every event has it"},
      {"store", kAtChat | kAtResponses, BoolRule{&ApiRequest::store},
       "false for a chat, true for a response",
       "The answer is kept, up to server.max_stored_answers, and can be asked for by its id"},
      {"metadata", kAtChat | kAtResponses | kAtStoredChat,
       OwnRule{Parse<ReadMetadata>, kMetadataSchema, R"([{},{"a":"b"}])",
               R"([7,[],{"a":7},{"a":["b"]}])"},
       "", "The client's own notes, told again with the stored answer"},
      {"stream_interval", kAtGeneration,
       IntRule{&ApiRequest::stream_interval, static_cast<int64_t>(Limits::kStreamInterval.min),
               static_cast<int64_t>(Limits::kStreamInterval.max)},
       "1", "Tokens per event; fewer where an event would have more than 2,048 log-probabilities"},
      {"echo", kAtCompletions, BoolRule{&ApiRequest::echo}, "false",
       "The text of the prompt stands before the answer, with logprobs each of its tokens too"},
      {"echo", kAtChat, RefusedRule{"it belongs to /v1/completions", {"false"}}, "", ""},
      {"n_probs", kAtGeneration, OwnRule{ParseNProbs, kCountSchema, "[0,20]", R"([-1,21,"a"])"},
       "0", "logprobs as llama.cpp spells it; 0: none"},
      {"logprobs", kAtCompletions,
       OwnRule{ParseLogprobs, kCountOrFalseSchema, "[false,0,20]", R"([true,-1,21,"a"])"}, "",
       "Log-probabilities of the drawn tokens and of so many most probable ones"},
      {"logprobs", kAtChat, OwnRule{ParseChatLogprobs, kBoolSchema, "[true,false]", R"([1,"a"])"},
       "false", "Log-probabilities of the drawn tokens"},
      {"top_logprobs", kAtChat, OwnRule{ParseTopLogprobs, kCountSchema, "[0]", R"([-1,21,"a",1])"},
       "0", "Log-probabilities of so many most probable tokens too; needs logprobs"},
      {"top_logprobs", kAtCompletions,
       RefusedRule{"it belongs to /v1/chat/completions; send logprobs as a number", {"0"}}, "", ""},
      {"logprob_token_ids", kAtGeneration,
       OwnRule{ParseLogprobTokens, kIdsSchema, "[[],[1,2]]", R"([7,[-1],["a"]])"}, "",
       "Tokens whose log-probabilities are told at each position"},
      {"return_tokens_as_token_ids", kAtGeneration, BoolRule{&ApiRequest::tokens_as_ids}, "false",
       "Tokens of logprobs are written as token_id:N"},
      {"prompt_logprobs", kAtGeneration,
       OwnRule{ParsePromptLogprobs, kCountOrFalseSchema, "[false,0,20]", R"([true,-1,21,"a"])"}, "",
       "The answer has prompt_logprobs: of each token of the prompt the log-probability and rank, "
       "and those of so many most probable ones. The first entry is null"},
      {"prompt_logprobs", kAtResponses,
       RefusedRule{"it belongs to /v1/completions and /v1/chat/completions", {"false"}}, "", ""},
      {"return_token_ids", kAtGeneration, BoolRule{&ApiRequest::return_token_ids}, "false",
       "The answer has prompt_token_ids and token_ids"},
      {"skip_special_tokens", kAtOpenAi, BoolRule{&ApiRequest::skip_special_tokens}, "true",
       "Special tokens have no text"},
      {"include_stop_str_in_output", kAtGeneration, BoolRule{&ApiRequest::include_stop}, "false",
       "The stop string stays in the text"},
      {"timings", kAtGeneration, BoolRule{&ApiRequest::timings}, "false",
       "The answer has the milliseconds of each part of the request's life"},
      {"baton_digest", kAtGeneration, BoolRule{&ApiRequest::digests}, "false",
       "The answer has a hash of the logits of each token"},
      {"modalities", kAtOpenAi, RefusedRule{"answers are text", {"[\"text\"]", "[]"}}, "", ""},
      {"audio", kAtGeneration, NoEffectRule{}, "",
       "The form of spoken answers, which modalities would ask for"},
      {"spaces_between_special_tokens", kAtOpenAi,
       RefusedRule{"the text is that of the tokenizer", {"true"}}, "", ""},
      {"include_reasoning", kAtGeneration, BoolRule{&ApiRequest::include_reasoning}, "true",
       "false: the reasoning of a chat is generated and not told"},
      {"separate_reasoning", kAtGeneration, BoolRule{&ApiRequest::separate_reasoning}, "true",
       "The reasoning of a chat stands in reasoning_content and reasoning "
       "(server.reasoning_names), not in the content"},
      {"reasoning_format", kAtGeneration,
       OwnRule{ParseReasoningFormat, R"({"type":"string","enum":["none","auto","deepseek"]})",
               R"(["none","auto","deepseek"])", R"([7,"other"])"},
       "auto", "separate_reasoning as llama.cpp spells it: none is false"},
      {"stream_reasoning", kAtOpenAi, RefusedRule{"reasoning is streamed as the text is", {"true"}},
       "", ""},
      {"thinking_token_budget", kAtChat,
       IntRule{&ApiRequest::reasoning_budget, 0,
               static_cast<int64_t>(Limits::kReasoningTokens.max)},
       "",
       "Tokens of reasoning, after which the model's end of reasoning follows; 400 if it has no "
       "token for that, or enable_thinking is false"},
      {"thinking_token_budget", kAtCompletions | kAtResponses,
       RefusedRule{"it belongs to /v1/chat/completions", {}}, "", ""},
      {"reasoning_budget", kAtOpenAi,
       RefusedRule{"send thinking_token_budget to /v1/chat/completions", {"-1"}}, "", ""},
      {"enable_thinking", kAtOpenAi, RefusedRule{"send it in chat_template_kwargs", {}}, "", ""},
      {"reasoning", kAtCompletions | kAtChat,
       RefusedRule{"send reasoning_effort to /v1/chat/completions", {"{}"}}, "", ""},
      {"thinking", kAtOpenAi, RefusedRule{"send it in chat_template_kwargs", {}}, "", ""},
      {"parse_tool_calls", kAtOpenAi,
       RefusedRule{"calls are told as tool_calls; without tools there are none", {"true"}}, "", ""},
      {"return_tokens", kAtOpenAi, RefusedRule{"send return_token_ids", {"false"}}, "", ""},
      {"return_progress", kAtOpenAi, RefusedRule{"progress is not told", {"false"}}, "", ""},
      {"timings_per_token", kAtOpenAi, RefusedRule{"send timings", {"false"}}, "", ""},
      {"response_fields", kAtOpenAi, RefusedRule{"answers are whole", {"[]"}}, "", ""},
      {"return_hidden_states", kAtOpenAi, RefusedRule{"hidden states are not told", {"false"}}, "",
       ""},
      {"return_routed_experts", kAtOpenAi, RefusedRule{"experts are not told", {"false"}}, "", ""},
      {"return_context_logits", kAtOpenAi, RefusedRule{"logits are not told", {"false"}}, "", ""},
      {"return_generation_logits", kAtOpenAi, RefusedRule{"logits are not told", {"false"}}, "",
       ""},
      {"return_perf_metrics", kAtOpenAi, RefusedRule{"send timings", {"false"}}, "", ""},
      {"post_sampling_probs", kAtOpenAi,
       RefusedRule{"log-probabilities are those of the unchanged logits", {"false"}}, "", ""},
      {"n_indent", kAtOpenAi, RefusedRule{"lines are not indented", {"0"}}, "", ""},
  };
  return kRows;
}

}  // namespace baton
