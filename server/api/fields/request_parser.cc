// ParseApiRequest: the body's fields by the rows of the table, then what fields say of each other.
#include <boost/json.hpp>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"
#include "server/api/fields/message_parser.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

bool IsGiven(const json::object& fields, const char* name) {
  const json::value* value = fields.if_contains(name);
  return value != nullptr && !value->is_null();
}

FieldProblem CheckNeeded(const json::object& fields, Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      if (!IsGiven(fields, "prompt")) return Missing("prompt");
      break;
    case Endpoint::kChat:
    case Endpoint::kApplyTemplate:
      if (!IsGiven(fields, "messages")) return Missing("messages");
      break;
    case Endpoint::kMessages:
      if (!IsGiven(fields, "messages")) return Missing("messages");
      if (!IsGiven(fields, "max_tokens")) return Missing("max_tokens");
      break;
    case Endpoint::kCountTokens:
      if (!IsGiven(fields, "messages")) return Missing("messages");
      break;
    case Endpoint::kResponses:
      if (!IsGiven(fields, "input") && !IsGiven(fields, "previous_response_id"))
        return Missing("input");
      break;
    case Endpoint::kStoredChat:
      if (!IsGiven(fields, "metadata")) return Missing("metadata");
      break;
    case Endpoint::kDetokenize:
      if (!IsGiven(fields, "tokens")) return Missing("tokens");
      break;
    case Endpoint::kTokenize: {
      const int n = static_cast<int>(IsGiven(fields, "prompt")) +
                    static_cast<int>(IsGiven(fields, "messages")) +
                    static_cast<int>(IsGiven(fields, "content"));
      if (n == 0) return Missing("prompt");
      if (n > 1) return InvalidField("prompt", "Send one of prompt, messages and content.");
    }
  }
  return std::nullopt;
}

// The field that max_tokens came from: the last of these rows wins.
std::string MaxTokensPath(const json::object& fields, const ApiRequest& request) {
  if (!request.max_tokens) return "";
  if (request.endpoint == Endpoint::kResponses) return "max_output_tokens";
  for (const char* name : {"max_completion_tokens", "max_new_tokens", "n_predict"})
    if (request.endpoint != Endpoint::kMessages && IsGiven(fields, name)) return name;
  return "max_tokens";
}

// 0 tokens are an answer where it tells of the prompt.
FieldProblem CheckPromptOnly(const ApiRequest& request) {
  if (!request.tells_prompt_only() || request.echo || request.prompt_logprobs) return std::nullopt;
  const std::string& name = request.max_tokens_path;
  return InvalidField(name, absl::StrCat(name,
                                         " must be 1 or more; got 0, which is for requests with "
                                         "echo or prompt_logprobs."));
}

FieldProblem CheckTogether(const json::object& fields, ApiRequest* request) {
  request->max_tokens_path = MaxTokensPath(fields, *request);
  if (request->best_of && *request->best_of < request->n) {
    return InvalidField("best_of", absl::StrCat("best_of must be n (", request->n,
                                                ") or more; got ", *request->best_of, "."));
  }
  if (request->best_of && request->stream) {
    return InvalidField("best_of",
                        "best_of cannot be streamed: the best are known at the end; leave out "
                        "best_of or stream.");
  }
  if (request->min_tokens && request->max_tokens && *request->min_tokens > *request->max_tokens) {
    return InvalidField("min_tokens",
                        absl::StrCat("min_tokens must be at most ", request->max_tokens_path, " (",
                                     *request->max_tokens, "); got ", *request->min_tokens, "."));
  }
  if (!request->logprob_token_ids.empty() && !request->top_logprobs) request->top_logprobs = 0;
  if (request->echo && !request->logprob_token_ids.empty()) {
    return Unsupported("echo",
                       "echo together with logprob_token_ids is not supported by this server: of "
                       "the prompt's tokens the most probable ones are told alone; leave out one "
                       "of them.");
  }
  if (auto problem = CheckPromptOnly(*request)) return problem;
  if (request->continue_final_message) {
    if (IsGiven(fields, "add_generation_prompt") && request->add_generation_prompt) {
      return InvalidField("continue_final_message",
                          "continue_final_message and add_generation_prompt cannot both be true.");
    }
    request->add_generation_prompt = false;
  }
  return request->endpoint == Endpoint::kChat ? CheckToolChoice(fields, request) : std::nullopt;
}

constexpr EndpointSet kGenerating = kAtOpenAi | kAtAnthropic;

const char* PathOf(EndpointSet endpoints) {
  if ((endpoints & kAtChat) != 0) return "it belongs to /v1/chat/completions";
  if ((endpoints & kAtCompletions) != 0) return "it belongs to /v1/completions";
  return (endpoints & kAtResponses) != 0 ? "it belongs to /v1/responses"
                                         : "it belongs to /v1/messages";
}

// The values with which a field asks for nothing at its own endpoint: what it stands for when it is
// absent, and plain values that leave a request as it is.
std::vector<std::string_view> NeutralValues(const Field& field) {
  std::vector<std::string_view> neutral = {field.preset};
  if (neutral.back() == "0") neutral.push_back("0E0");  // 0.0
  for (const std::string_view value : {"false", "true", "\"\"", "[]", "{}"}) {
    ApiRequest request;
    const auto problem = ApplyRule(field.rule, field.name, *ParseJson(value), {}, &request);
    if (!problem && request == ApiRequest()) neutral.push_back(value);
  }
  return neutral;
}

// Fields that shape the output at other endpoints, by name, with the values that change nothing.
// A field that all of those refuse is refused in the same words.
using Foreign = std::map<std::string_view, RefusedRule>;

Foreign ForeignTo(Endpoint endpoint) {
  Foreign foreign;
  std::vector<const Field*> refused;
  for (const Field& field : AllFields()) {
    if ((field.endpoints & kGenerating) == 0 || std::holds_alternative<NoEffectRule>(field.rule))
      continue;
    if (std::holds_alternative<RefusedRule>(field.rule)) {
      refused.push_back(&field);
      continue;
    }
    foreign.emplace(field.name, RefusedRule{PathOf(field.endpoints), NeutralValues(field)});
  }
  for (const Field* field : refused)
    foreign.emplace(field->name, std::get<RefusedRule>(field->rule));
  for (const Field& field : AllFields())
    if ((field.endpoints & SetOf(endpoint)) != 0) foreign.erase(field.name);
  return foreign;
}

// Refuses what other endpoints take and this one does not know: nothing is dropped in silence.
FieldProblem CheckForeign(const json::object& fields, const RequestSettings& settings,
                          ApiRequest* request) {
  static const std::map<Endpoint, Foreign> kForeign = [] {
    std::map<Endpoint, Foreign> all;
    for (const Endpoint endpoint :
         {Endpoint::kCompletions, Endpoint::kChat, Endpoint::kMessages, Endpoint::kResponses})
      all[endpoint] = ForeignTo(endpoint);
    return all;
  }();
  const auto found = kForeign.find(request->endpoint);
  if (found == kForeign.end()) return std::nullopt;
  for (const auto& [name, rule] : found->second) {
    const json::value* value = fields.if_contains(name);
    if (value == nullptr || value->is_null()) continue;
    if (auto problem = ApplyRule(rule, std::string(name), *value, settings, request))
      return problem;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ParseApiRequest(Endpoint endpoint, std::string_view body,
                                        ApiRequest* request, const RequestSettings& settings) {
  request->endpoint = endpoint;
  request->store = endpoint == Endpoint::kResponses;
  const auto document = ParseJson(body);
  if (!document.ok()) {
    ApiError error;
    error.message = std::string(document.status().message());
    return error;
  }
  const json::object* fields = document->if_object();
  if (fields == nullptr) {
    return InvalidField("", "The request body must be a JSON object.", "invalid_type");
  }
  for (const Field& field : AllFields()) {
    if ((field.endpoints & SetOf(endpoint)) == 0) continue;
    const json::value* value = fields->if_contains(field.name);
    if (value == nullptr || value->is_null()) continue;
    if (auto problem = ApplyRule(field.rule, field.name, *value, settings, request)) return problem;
  }
  if (auto problem = CheckForeign(*fields, settings, request)) return problem;
  if (auto problem = CheckNeeded(*fields, endpoint)) return problem;
  return CheckTogether(*fields, request);
}

}  // namespace baton
