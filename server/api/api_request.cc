#include "server/api/api_request.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/request_limits.h"
#include "server/api/json_document.h"
#include "text/stop_matcher.h"

namespace baton {
namespace {

namespace json = boost::json;
using Problem = std::optional<ApiError>;

using Limits = RequestLimits;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// A client's value, shortened for an error message.
std::string Shown(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 60) text = absl::StrCat(std::string(BeginningOf(text, 57)), "...");
  return text;
}

ApiError WrongType(const std::string& param, const json::value& value, const char* wanted) {
  return InvalidField(param, absl::StrCat(param, " must be ", wanted, "; got ", Shown(value), "."),
                      "invalid_type");
}

std::string Text(const json::string& text) { return {text.data(), text.size()}; }

// An integer, or a double that is one exactly.
std::optional<int64_t> Integer(const json::value& value) {
  json::error_code ec;
  const auto number = value.is_number() ? value.to_number<int64_t>(ec) : 0;
  if (!value.is_number() || ec) return std::nullopt;
  return number;
}

// --- rules of single fields ---------------------------------------------------------------------

struct BoolRule {
  bool ApiRequest::*field;
};
struct IntRule {
  std::optional<int64_t> ApiRequest::*field;
  int64_t min, max;
};
struct NumberRule {
  std::optional<double> ApiRequest::*field;
  FieldLimit limit;
  bool above_min = false;  // the minimum itself is not allowed
};
struct CustomRule {
  Problem (*parse)(const std::string& name, const json::value& value, ApiRequest* request);
};
// Known, not built: null and the values that change nothing pass.
struct UnsupportedRule {
  bool (*is_neutral)(const json::value& value);
};
using Rule = std::variant<BoolRule, IntRule, NumberRule, CustomRule, UnsupportedRule>;

enum class Where { kBoth, kCompletions, kChat };

struct Row {
  const char* name;
  Where where;
  Rule rule;
};

Problem Apply(const BoolRule& rule, const std::string& name, const json::value& value,
              ApiRequest* request) {
  if (!value.is_bool()) return WrongType(name, value, "true or false");
  request->*rule.field = value.get_bool();
  return std::nullopt;
}

Problem Apply(const IntRule& rule, const std::string& name, const json::value& value,
              ApiRequest* request) {
  if (!value.is_number()) return WrongType(name, value, "an integer");
  const auto number = Integer(value);
  if (!number || *number < rule.min || *number > rule.max) {
    return InvalidField(name, absl::StrCat(name, " must be an integer from ", rule.min, " to ",
                                           rule.max, "; got ", Shown(value), "."));
  }
  request->*rule.field = *number;
  return std::nullopt;
}

Problem Apply(const NumberRule& rule, const std::string& name, const json::value& value,
              ApiRequest* request) {
  if (!value.is_number()) return WrongType(name, value, "a number");
  json::error_code ec;
  const double number = value.to_number<double>(ec);
  if (ec || !CheckLimit(rule.limit, number).ok() || (rule.above_min && number == rule.limit.min)) {
    return InvalidField(name, absl::StrFormat("%s must be a number %s %g and at most %g; got %s.",
                                              name, rule.above_min ? "above" : "from",
                                              rule.limit.min, rule.limit.max, Shown(value)));
  }
  request->*rule.field = number;
  return std::nullopt;
}

Problem Apply(const CustomRule& rule, const std::string& name, const json::value& value,
              ApiRequest* request) {
  return rule.parse(name, value, request);
}

Problem Apply(const UnsupportedRule& rule, const std::string& name, const json::value& value,
              ApiRequest*) {
  if (rule.is_neutral(value)) return std::nullopt;
  return Unsupported(name, absl::StrCat(name,
                                        " is not supported by this server; leave it out "
                                        "(got ",
                                        Shown(value), ")."));
}

bool NeverNeutral(const json::value&) { return false; }
bool IsTrue(const json::value& value) { return value.is_bool() && value.get_bool(); }
bool IsFalse(const json::value& value) { return value.is_bool() && !value.get_bool(); }
bool IsZero(const json::value& value) {
  return value.is_number() && value.to_number<double>() == 0;
}
bool IsOne(const json::value& value) { return value.is_number() && value.to_number<double>() == 1; }
bool IsMinusOne(const json::value& value) {
  return value.is_number() && value.to_number<double>() == -1;
}
bool IsEmpty(const json::value& value) {
  return (value.is_string() && value.get_string().empty()) ||
         (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}
bool IsText(const json::value& value) {  // response_format
  const json::object* object = value.if_object();
  const json::value* type = object == nullptr ? nullptr : object->if_contains("type");
  return type != nullptr && *type == "text";
}
bool IsTextOnly(const json::value& value) {  // modalities
  const json::array* list = value.if_array();
  return list != nullptr && (list->empty() || (list->size() == 1 && list->front() == "text"));
}
bool IsAutoOrNone(const json::value& value) { return value == "auto" || value == "none"; }

// --- fields with a form of their own ------------------------------------------------------------

Problem ParseModel(const std::string& name, const json::value& value, ApiRequest* request) {
  if (!value.is_string()) return WrongType(name, value, "a string");
  request->model = Text(value.get_string());
  return std::nullopt;
}

Problem ParseTokenIds(const std::string& name, const json::array& ids, std::vector<int32_t>* out) {
  out->reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = Integer(ids[i]);
    if (!id || !CheckLimit(Limits::kTokenId, static_cast<double>(*id)).ok()) {
      const std::string param = absl::StrCat(name, "[", i, "]");
      return InvalidField(param,
                          absl::StrCat(param, " must be a token id; got ", Shown(ids[i]), "."));
    }
    out->push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

// A string, a list of token ids, or a list of these.
Problem ParsePrompt(const std::string& name, const json::value& value, ApiRequest* request) {
  if (value.is_string()) {
    request->prompts.emplace_back(Text(value.get_string()));
    return std::nullopt;
  }
  const json::array* list = value.if_array();
  if (list == nullptr) return WrongType(name, value, "a string or a list of token ids");
  if (list->empty()) return InvalidField(name, "prompt must not be empty.");
  if (list->front().is_number()) {
    std::vector<int32_t> ids;
    auto problem = ParseTokenIds(name, *list, &ids);
    request->prompts.emplace_back(std::move(ids));
    return problem;
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = absl::StrCat(name, "[", i, "]");
    const json::value& entry = list->at(i);
    if (entry.is_string()) {
      request->prompts.emplace_back(Text(entry.get_string()));
      continue;
    }
    const json::array* inner = entry.if_array();
    if (inner == nullptr) return WrongType(path, entry, "a string or a list of token ids");
    if (inner->empty()) return InvalidField(path, path + " must not be empty.");
    std::vector<int32_t> ids;
    if (auto problem = ParseTokenIds(path, *inner, &ids)) return problem;
    request->prompts.emplace_back(std::move(ids));
  }
  return std::nullopt;
}

Problem ParseN(const std::string& name, const json::value& value, ApiRequest* request) {
  const auto n = Integer(value);
  if (!n || *n < 1 || *n > 8) return InvalidField(name, name + " must be an integer from 1 to 8.");
  request->n = *n;
  return std::nullopt;
}

Problem ParseStreamInterval(const std::string&, const json::value& value, ApiRequest* request) {
  request->stream_interval = Integer(value).value_or(1);
  return std::nullopt;
}

Problem ParseLogprobs(const std::string&, const json::value& value, ApiRequest* request) {
  if (value.is_bool() && value.get_bool())
    request->top_logprobs = request->top_logprobs.value_or(0);
  if (value.is_number()) request->top_logprobs = Integer(value);
  return std::nullopt;
}

// Text parts are joined; other kinds are refused by name.
Problem JoinParts(const std::string& param, json::value* content) {
  std::string joined;
  const json::array& parts = content->get_array();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string path = absl::StrCat(param, "[", i, "]");
    const json::object* part = parts[i].if_object();
    if (part == nullptr) return WrongType(path, parts[i], "an object with a type");
    const json::value* type = part->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      return InvalidField(path + ".type", path + ".type must be \"text\".", "invalid_type");
    }
    if (*type != "text") {
      return Unsupported(path + ".type", absl::StrCat("Parts of type ", Shown(*type),
                                                      " are not supported; send text."));
    }
    const json::value* text = part->if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return InvalidField(path + ".text", path + ".text must be a string.", "invalid_type");
    }
    joined += Text(text->get_string());
  }
  *content = json::string(joined);
  return std::nullopt;
}

Problem ParseMessage(const std::string& path, json::value* value) {
  json::object* message = value->if_object();
  if (message == nullptr) return WrongType(path, *value, "an object with role and content");
  json::value* role = message->if_contains("role");
  if (role == nullptr || !role->is_string()) {
    return InvalidField(path + ".role", path + ".role must be a string.", "invalid_type");
  }
  static constexpr const char* kRoles[] = {"developer", "system", "user",
                                           "assistant", "tool",   "function"};
  if (std::none_of(std::begin(kRoles), std::end(kRoles),
                   [&](const char* known) { return *role == known; })) {
    return InvalidField(path + ".role",
                        absl::StrCat(path,
                                     ".role must be one of developer, system, user, assistant, "
                                     "tool, function; got ",
                                     Shown(*role), "."));
  }
  if (*role == "developer") *role = "system";
  json::value* content = message->if_contains("content");
  if (content == nullptr || content->is_null()) {  // an assistant may have only called tools
    if (*role == "assistant") return std::nullopt;
    return InvalidField(path + ".content", path + ".content is needed.",
                        "missing_required_parameter");
  }
  if (content->is_string()) return std::nullopt;
  if (content->is_array()) return JoinParts(path + ".content", content);
  return WrongType(path + ".content", *content, "a string, null or a list of text parts");
}

Problem ParseMessages(const std::string& name, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(name, value, "a list of messages");
  json::array messages = value.get_array();
  if (messages.empty()) return InvalidField(name, "messages must not be empty.");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (auto problem = ParseMessage(absl::StrCat(name, "[", i, "]"), &messages[i])) return problem;
  }
  request->messages = json::serialize(messages);
  return std::nullopt;
}

Problem ParseTools(const std::string& name, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(name, value, "a list of tools");
  const json::array& tools = value.get_array();
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object())
      return WrongType(absl::StrCat(name, "[", i, "]"), tools[i], "an object");
  }
  if (!tools.empty()) request->tools = json::serialize(tools);
  return std::nullopt;
}

Problem ParseTemplateVariables(const std::string& name, const json::value& value,
                               ApiRequest* request) {
  if (!value.is_object()) return WrongType(name, value, "an object");
  request->template_variables = json::serialize(value);
  return std::nullopt;
}

Problem ParseStop(const std::string& name, const json::value& value, ApiRequest* request) {
  json::array list;
  if (value.is_string()) {
    list.push_back(value);
  } else if (value.is_array()) {
    list = value.get_array();
  } else {
    return WrongType(name, value, "a string or a list of strings");
  }
  if (list.size() > kMaxStopStrings) {
    return InvalidField(name, absl::StrCat("stop may have at most ", kMaxStopStrings,
                                           " strings; got ", list.size(), "."));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string param = value.is_string() ? name : absl::StrCat(name, "[", i, "]");
    if (!list[i].is_string()) return WrongType(param, list[i], "a string");
    const std::string text = Text(list[i].get_string());
    if (text.empty() || text.size() > kMaxStopBytes || text.find('\0') != std::string::npos) {
      return InvalidField(
          param, absl::StrCat(param, " must have 1 to ", kMaxStopBytes, " bytes and no NUL."));
    }
    request->stop.push_back(text);
  }
  return std::nullopt;
}

Problem ParseStopTokenIds(const std::string& name, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(name, value, "a list of token ids");
  std::vector<int32_t> ids;
  if (auto problem = ParseTokenIds(name, value.get_array(), &ids)) return problem;
  absl::flat_hash_set<int32_t> seen;
  for (const int32_t id : ids)
    if (seen.insert(id).second) request->stop_token_ids.push_back(id);
  const auto n = static_cast<double>(request->stop_token_ids.size());
  if (CheckLimit(Limits::kStopTokenIds, n).ok()) return std::nullopt;
  return InvalidField(name, absl::StrFormat("%s may have at most %d different ids; got %d.", name,
                                            static_cast<int64_t>(Limits::kStopTokenIds.max),
                                            request->stop_token_ids.size()));
}

Problem ParseAddSpecialTokens(const std::string& name, const json::value& value,
                              ApiRequest* request) {
  if (!value.is_bool()) return WrongType(name, value, "true or false");
  request->add_special_tokens = value.get_bool();
  return std::nullopt;
}

Problem ParseStreamOptions(const std::string& name, const json::value& value, ApiRequest* request) {
  const json::object* options = value.if_object();
  if (options == nullptr) return WrongType(name, value, "an object");
  const struct {
    const char* key;
    bool ApiRequest::*field;
  } kOptions[] = {{"include_usage", &ApiRequest::include_usage},
                  {"continuous_usage_stats", &ApiRequest::continuous_usage}};
  for (const auto& [key, field] : kOptions) {
    const json::value* option = options->if_contains(key);
    if (option == nullptr || option->is_null()) continue;
    if (auto problem = Apply(BoolRule{field}, absl::StrCat(name, ".", key), *option, request)) {
      return problem;
    }
  }
  return std::nullopt;
}

// --- the table ----------------------------------------------------------------------------------

const Row kRows[] = {
    {"model", Where::kBoth, CustomRule{ParseModel}},
    {"prompt", Where::kCompletions, CustomRule{ParsePrompt}},
    {"messages", Where::kChat, CustomRule{ParseMessages}},
    {"tools", Where::kChat, CustomRule{ParseTools}},
    {"chat_template_kwargs", Where::kChat, CustomRule{ParseTemplateVariables}},
    {"add_generation_prompt", Where::kChat, BoolRule{&ApiRequest::add_generation_prompt}},
    {"add_special_tokens", Where::kBoth, CustomRule{ParseAddSpecialTokens}},
    {"max_tokens", Where::kBoth, IntRule{&ApiRequest::max_tokens, 1, kMaxInt}},
    // Last of the two: it wins over max_tokens.
    {"max_completion_tokens", Where::kBoth, IntRule{&ApiRequest::max_tokens, 1, kMaxInt}},
    {"temperature", Where::kBoth, NumberRule{&ApiRequest::temperature, Limits::kTemperature}},
    {"top_p", Where::kBoth, NumberRule{&ApiRequest::top_p, {"top_p", 0, Limits::kTopP.max}, true}},
    {"top_k", Where::kBoth,
     IntRule{&ApiRequest::top_k, static_cast<int64_t>(Limits::kTopK.min),
             static_cast<int64_t>(Limits::kTopK.max)}},
    {"seed", Where::kBoth,
     IntRule{&ApiRequest::seed, std::numeric_limits<int64_t>::min(),
             std::numeric_limits<int64_t>::max()}},
    {"stop", Where::kBoth, CustomRule{ParseStop}},
    {"stop_token_ids", Where::kBoth, CustomRule{ParseStopTokenIds}},
    {"ignore_eos", Where::kBoth, BoolRule{&ApiRequest::ignore_eos}},
    {"stream", Where::kBoth, BoolRule{&ApiRequest::stream}},
    {"stream_options", Where::kBoth, CustomRule{ParseStreamOptions}},
    {"skip_special_tokens", Where::kBoth, BoolRule{&ApiRequest::skip_special_tokens}},
    {"include_stop_str_in_output", Where::kBoth, BoolRule{&ApiRequest::include_stop}},
    {"return_token_ids", Where::kBoth, BoolRule{&ApiRequest::return_token_ids}},
    {"timings", Where::kBoth, BoolRule{&ApiRequest::timings}},
    {"baton_digest", Where::kBoth, BoolRule{&ApiRequest::digests}},
    {"n", Where::kBoth, CustomRule{ParseN}},
    {"stream_interval", Where::kBoth, CustomRule{ParseStreamInterval}},
    {"best_of", Where::kCompletions, IntRule{&ApiRequest::best_of, 0, 8}},
    {"echo", Where::kCompletions, BoolRule{&ApiRequest::echo}},
    {"suffix", Where::kCompletions, UnsupportedRule{IsEmpty}},
    {"prompt_embeds", Where::kCompletions, UnsupportedRule{NeverNeutral}},
    {"top_logprobs", Where::kChat, IntRule{&ApiRequest::top_logprobs, 0, 20}},
    {"logprobs", Where::kBoth, CustomRule{ParseLogprobs}},
    {"prompt_logprobs", Where::kBoth, UnsupportedRule{IsFalse}},
    {"presence_penalty", Where::kBoth, UnsupportedRule{IsZero}},
    {"frequency_penalty", Where::kBoth, UnsupportedRule{IsZero}},
    {"repetition_penalty", Where::kBoth, UnsupportedRule{IsOne}},
    {"min_p", Where::kBoth, UnsupportedRule{IsZero}},
    {"min_tokens", Where::kBoth, UnsupportedRule{IsZero}},
    {"logit_bias", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"allowed_token_ids", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"bad_words", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"structured_outputs", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"response_format", Where::kBoth, UnsupportedRule{IsText}},
    {"tool_choice", Where::kChat, UnsupportedRule{IsAutoOrNone}},
    {"functions", Where::kChat, UnsupportedRule{IsEmpty}},
    {"function_call", Where::kChat, UnsupportedRule{IsAutoOrNone}},
    {"continue_final_message", Where::kChat, UnsupportedRule{IsFalse}},
    {"chat_template", Where::kChat, UnsupportedRule{NeverNeutral}},
    {"audio", Where::kChat, UnsupportedRule{IsEmpty}},
    {"modalities", Where::kChat, UnsupportedRule{IsTextOnly}},
    {"documents", Where::kChat, UnsupportedRule{IsEmpty}},
    {"reasoning_effort", Where::kChat, UnsupportedRule{NeverNeutral}},
    // Separate tenants: taken and ignored, one would get the other's cached prompts.
    {"cache_salt", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"kv_transfer_params", Where::kBoth, UnsupportedRule{IsEmpty}},
    // vLLM's.
    {"logprob_token_ids", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"return_tokens_as_token_ids", Where::kBoth, UnsupportedRule{IsFalse}},
    {"spaces_between_special_tokens", Where::kBoth, UnsupportedRule{IsTrue}},
    {"truncate_prompt_tokens", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"use_beam_search", Where::kBoth, UnsupportedRule{IsFalse}},
    {"length_penalty", Where::kBoth, UnsupportedRule{IsOne}},
    {"logits_processors", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"vllm_xargs", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"thinking_token_budget", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"guided_json", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"guided_regex", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"guided_choice", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"guided_grammar", Where::kBoth, UnsupportedRule{NeverNeutral}},
    // SGLang's.
    {"regex", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"ebnf", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"json_schema", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"stop_regex", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"no_stop_trim", Where::kBoth, UnsupportedRule{IsFalse}},
    {"custom_logit_processor", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"lora_path", Where::kBoth, UnsupportedRule{IsEmpty}},
    // llama.cpp's.
    {"n_predict", Where::kBoth, UnsupportedRule{NeverNeutral}},
    {"grammar", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"n_probs", Where::kBoth, UnsupportedRule{IsZero}},
    {"min_keep", Where::kBoth, UnsupportedRule{IsZero}},
    {"samplers", Where::kBoth, UnsupportedRule{IsEmpty}},
    {"t_max_predict_ms", Where::kBoth, UnsupportedRule{IsZero}},
    {"repeat_penalty", Where::kBoth, UnsupportedRule{IsOne}},
    {"typical_p", Where::kBoth, UnsupportedRule{IsOne}},
    {"top_n_sigma", Where::kBoth, UnsupportedRule{IsMinusOne}},
    {"dynatemp_range", Where::kBoth, UnsupportedRule{IsZero}},
    {"dry_multiplier", Where::kBoth, UnsupportedRule{IsZero}},
    {"xtc_probability", Where::kBoth, UnsupportedRule{IsZero}},
    {"mirostat", Where::kBoth, UnsupportedRule{IsZero}},
};

bool AppliesTo(Where where, Endpoint endpoint) {
  return where == Where::kBoth || (where == Where::kChat) == (endpoint == Endpoint::kChat);
}

}  // namespace

std::optional<ApiError> ParseApiRequest(Endpoint endpoint, std::string_view body,
                                        ApiRequest* request) {
  request->endpoint = endpoint;
  auto document = ParseJson(body);
  if (!document.ok()) {
    ApiError error;
    error.message = std::string(document.status().message());
    return error;
  }
  const json::object* fields = document->if_object();
  if (fields == nullptr) {
    return InvalidField("", "The request body must be a JSON object.", "invalid_type");
  }
  for (const Row& row : kRows) {
    if (!AppliesTo(row.where, endpoint)) continue;
    const json::value* value = fields->if_contains(row.name);
    if (value == nullptr || value->is_null()) continue;
    auto problem = std::visit(
        [&](const auto& rule) { return Apply(rule, row.name, *value, request); }, row.rule);
    if (problem) return problem;
  }
  const json::value* choice = fields->if_contains("tool_choice");
  if (choice != nullptr && *choice == "none") request->tools.clear();
  if (endpoint == Endpoint::kChat && request->messages.empty()) {
    return InvalidField("messages", "messages is needed.", "missing_required_parameter");
  }
  if (endpoint == Endpoint::kCompletions && request->prompts.empty()) {
    return InvalidField("prompt", "prompt is needed.", "missing_required_parameter");
  }
  return std::nullopt;
}

}  // namespace baton
