// A client's request to any Endpoint, checked field by field: one table (fields/field.h) says which
// fields there are, of which type and in which range. Fields that other servers know, that change
// what comes out and that are not built are in it too: refused by name, unless they say what is the
// case anyway. Fields that are not in the table are ignored, as the peers do. Plain data and pure
// functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/sampling_params.h"
#include "server/api/api_error.h"
#include "server/api/response_request.h"
#include "text/tools/tool_grammar.h"

namespace baton {

enum class Endpoint {
  kCompletions,
  kChat,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kMessages,     // of Anthropic's API
  kCountTokens,  // of a conversation for kMessages
  kResponses,
  kStoredChat  // a change of a stored chat completion
};

// Decision about calling tools: the model's, the request's, or the request's by a tool's name.
enum class ToolChoice { kAuto, kRequired, kNamed };

// Settings of the server that bound requests.
struct RequestSettings {
  int64_t max_choices = 8;  // n and best_of
};

struct ApiRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  // The answer goes on with a conversation.
  bool is_chat() const {
    return endpoint == Endpoint::kChat || endpoint == Endpoint::kMessages ||
           endpoint == Endpoint::kResponses;
  }
  std::string model;  // empty = the served one

  // completions: one or more prompts, each as text or as token ids (with chat: at most one, ids).
  // chat: messages, a JSON array of objects with role and string content.
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;
  std::string messages;
  // As `messages`, but with content that was a list of text parts left as one, for templates that
  // iterate over it (there: joined by line ends); empty: no message has such a list.
  std::string messages_in_parts;
  std::string tools;                         // JSON array, or empty
  std::vector<CallableTool> callable_tools;  // those of `tools` that may be called
  ToolChoice tool_choice = ToolChoice::kAuto;
  bool parallel_tool_calls = true;
  bool must_call() const { return tool_choice != ToolChoice::kAuto; }
  std::string template_variables;  // JSON object, or empty
  bool thinking_is_off = false;    // one of them is enable_thinking, false
  bool add_generation_prompt = true;
  std::optional<bool> add_special_tokens;

  std::string documents;  // JSON array, or empty
  bool continue_final_message = false;

  int64_t n = 1;                   // choices per prompt
  std::optional<int64_t> best_of;  // of so many choices, the n with the best mean logprob
  bool echo = false;
  std::optional<int64_t> truncate_prompt_tokens;  // keeps so many tokens of the prompt; -1: as fit
  bool truncate_left = true;                      // keeps the end of the prompt

  std::optional<int64_t> max_tokens;
  std::string max_tokens_path;  // the field that it came from
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k, seed;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> min_tokens;
  std::optional<int64_t> reasoning_budget;  // tokens of reasoning
  std::vector<LogitBias> logit_bias;        // ascending by token, each token once
  std::vector<int32_t> allowed_token_ids;   // ascending, each once
  std::vector<std::string> bad_words;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;  // each once
  bool ignore_eos = false;
  std::string cache_salt;    // empty: that of all requests without one
  std::string tenant;        // of the client's key; empty: there are no keys
  GrammarSpec grammar{};     // that the answer is kept inside
  std::string grammar_path;  // the field that it came from

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // only with include_usage
  bool skip_special_tokens = true;
  // Reasoning is told beside the content, or not at all; else it stays in the content.
  bool separate_reasoning = true, include_reasoning = true;
  bool include_stop = false;  // the stop string stays in the text
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // tokens of logprobs are written as "token_id:N"
  // Log-probabilities of so many most probable tokens beside each token (0: of the token itself) of
  // the answer, with echo of the prompt too; and of the prompt in a list of its own. Empty: none.
  std::optional<int64_t> top_logprobs, prompt_logprobs;
  bool echoes_logprobs() const { return echo && top_logprobs.has_value(); }
  bool tells_prompt_only() const { return max_tokens == 0; }  // nothing is generated
  std::vector<int32_t> logprob_token_ids;                     // only with top_logprobs
  int64_t stream_interval = 1;                                // tokens per event
  bool timings = false;
  bool digests = false;

  bool store = false;    // clients may ask for the answer again
  std::string metadata;  // JSON object, or empty
  ResponseRequest response{};

  // tokenize: beside the ids, their text. detokenize: the ids.
  bool token_strings = false;
  bool with_pieces = false;
  std::optional<std::string> content;  // as llama.cpp spells the text to tokenize
  std::vector<int32_t> tokens;

  bool operator==(const ApiRequest&) const = default;
};

// Nothing: *request is whole. Values that need the model (ids, lengths) are checked later. The
// fields are those of the table (fields/field.h).
std::optional<ApiError> ParseApiRequest(Endpoint endpoint, std::string_view body,
                                        ApiRequest* request, const RequestSettings& settings = {});

// request->messages from the conversation of a request to /v1/responses: behind its instructions,
// without so many messages at the beginning.
std::optional<ApiError> ReadConversation(size_t n_left_out, ApiRequest* request);

}  // namespace baton
