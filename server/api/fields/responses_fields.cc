// Rows of /v1/responses alone. Those that it has in common with the other endpoints are theirs.
#include <algorithm>
#include <boost/json.hpp>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"
#include "server/api/fields/message_parser.h"
#include "server/api/fields/response_input.h"
#include "server/api/fields/response_tools.h"

namespace baton {
namespace {

namespace json = boost::json;

FieldProblem ReadInstructions(const std::string& path, const json::value& value,
                              ApiRequest* request) {
  request->response.has_instructions = true;
  return ReadText(path, value, &request->response.instructions);
}

FieldProblem ReadPrevious(const std::string& path, const json::value& value, ApiRequest* request) {
  constexpr size_t kMaxBytes = 256;
  return ReadString(path, value, kMaxBytes, &request->response.previous_id);
}

// effort is a variable of the template, as reasoning_effort of the chat is.
FieldProblem ReadReasoning(const std::string& path, const json::value& value, ApiRequest* request) {
  static constexpr const char* kWanted = "one of none, minimal, low, medium, high, xhigh, max";
  const json::object* members = value.if_object();
  if (members == nullptr) return WrongType(path, value, "an object");
  const json::value* effort = members->if_contains("effort");
  if (effort == nullptr || effort->is_null()) return std::nullopt;
  if (!effort->is_string()) return WrongType(path + ".effort", *effort, kWanted);
  if (*effort != "none" && *effort != "minimal" && *effort != "low" && *effort != "medium" &&
      *effort != "high" && *effort != "xhigh" && *effort != "max")
    return WrongValue(path + ".effort", *effort, kWanted);
  if (auto problem = SetTemplateVariable("reasoning_effort", *effort, request)) return problem;
  request->response.effort = json::serialize(*effort);
  return std::nullopt;
}

// Only log-probabilities can be left out; all else that an answer has, it has anyway.
FieldProblem ReadInclude(const std::string& path, const json::value& value, ApiRequest* request) {
  static constexpr const char* kKnown[] = {"file_search_call.results",
                                           "web_search_call.results",
                                           "web_search_call.action.sources",
                                           "message.input_image.image_url",
                                           "computer_call_output.output.image_url",
                                           "code_interpreter_call.outputs",
                                           "reasoning.encrypted_content",
                                           "message.output_text.logprobs"};
  if (!value.is_array()) return WrongType(path, value, "a list of strings");
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const json::value& one = value.get_array()[i];
    const std::string entry = absl::StrCat(path, "[", i, "]");
    if (!one.is_string()) return WrongType(entry, one, "a string");
    if (std::none_of(std::begin(kKnown), std::end(kKnown),
                     [&](const char* known) { return one == known; }))
      return WrongValue(entry, one, "a part of answers, such as message.output_text.logprobs");
    if (one == "message.output_text.logprobs" && !request->top_logprobs) request->top_logprobs = 0;
  }
  return std::nullopt;
}

FieldProblem ReadTopLogprobs(const std::string& path, const json::value& value,
                             ApiRequest* request) {
  int64_t n = 0;
  if (auto problem =
          ReadInt(path, value, 0, static_cast<int64_t>(RequestLimits::kTopLogprobs.max), &n))
    return problem;
  if (n > 0 || request->top_logprobs) request->top_logprobs = n;
  return std::nullopt;
}

FieldProblem ReadTruncation(const std::string& path, const json::value& value,
                            ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, value, "auto or disabled");
  if (value != "auto" && value != "disabled") return WrongValue(path, value, "auto or disabled");
  request->response.truncates = value == "auto";
  return std::nullopt;
}

FieldProblem ReadStreamOptions(const std::string& path, const json::value& value, ApiRequest*) {
  if (!value.is_object()) return WrongType(path, value, "an object");
  const json::value* obfuscation = value.get_object().if_contains("include_obfuscation");
  bool wanted = false;
  if (obfuscation == nullptr || obfuscation->is_null()) return std::nullopt;
  return ReadBool(path + ".include_obfuscation", *obfuscation, &wanted);
}

// Texts of the client's that the answer repeats.
template <std::string ResponseRequest::*kMember>
FieldProblem ReadEchoed(const std::string& path, const json::value& value, ApiRequest* request) {
  std::string text;
  if (auto problem = ReadText(path, value, &text)) return problem;
  request->response.*kMember = json::serialize(value);
  return std::nullopt;
}

constexpr char kInputSchema[] =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})";
constexpr char kToolsSchema[] =
    R"({"type":"array","items":{"type":"object","required":["type","name"]}})";
constexpr char kToolChoiceSchema[] =
    R"({"anyOf":[{"type":"string","enum":["none","auto","required"]},{"type":"object"}]})";
constexpr char kTextSchema[] = R"({"type":"string"})";
constexpr char kIdSchema[] = R"({"type":"string","minLength":1,"maxLength":256})";
constexpr char kObjectSchema[] = R"({"type":"object"})";
constexpr char kStringsSchema[] = R"({"type":"array","items":{"type":"string"}})";
constexpr char kCountSchema[] = R"({"type":"integer","minimum":0,"maximum":20})";
constexpr char kTruncationSchema[] = R"({"type":"string","enum":["auto","disabled"]})";

constexpr char kGoodInput[] =
    R"(["a",[{"role":"user","content":"a"}],)"
    R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}],)"
    R"([{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c","name":"f",)"
    R"("arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"a"}]])";
constexpr char kBadInput[] =
    R"([7,{},[7],[{"role":"king","content":"a"}],[{"role":"user"}],)"
    R"([{"role":"user","content":[{"type":"input_image"}]}],)"
    R"([{"role":"user","content":[{"type":"input_audio"}]}],[{"type":"computer_call"}],)"
    R"([{"type":"item_reference","id":"a"}],[{"type":"function_call_output","output":"a"}],)"
    R"([{"type":"function_call","call_id":"c","name":"f","arguments":"{a"}]])";
constexpr char kGoodTools[] =
    R"([[],[{"type":"function","name":"f"}],[{"type":"custom","name":"f"}],)"
    R"([{"type":"custom","name":"f","format":{"type":"grammar","syntax":"regex",)"
    R"("definition":"a+"}}]])";
constexpr char kBadTools[] =
    R"([7,[7],[{"type":"function"}],[{"type":"web_search"}],[{"type":"function","name":""}],)"
    R"([{"type":"function","name":"f","parameters":7}],)"
    R"([{"type":"custom","name":"f","format":{"type":"grammar","syntax":"lark",)"
    R"("definition":"start: \"a\""}}]])";

}  // namespace

std::span<const Field> ResponsesFields() {
  static const std::vector<Field> kRows = {
      {"input", kAtResponses,
       OwnRule{Parse<ReadResponseInput>, kInputSchema, kGoodInput, kBadInput}, "",
       "Needed without previous_response_id: a text, or items (message, reasoning, function_call, "
       "custom_tool_call, and their outputs)"},
      {"instructions", kAtResponses,
       OwnRule{Parse<ReadInstructions>, kTextSchema, R"(["a",""])", R"([7,["a"]])"}, "",
       "A system message before the conversation; not handed on to later responses"},
      {"previous_response_id", kAtResponses,
       OwnRule{Parse<ReadPrevious>, kIdSchema, R"(["resp_1"])", R"([7,""])"}, "",
       "The conversation of that stored response and its answer come before input; 404 if it is "
       "unknown or gone"},
      {"max_output_tokens", kAtResponses,
       IntRule{&ApiRequest::max_tokens, 1, std::numeric_limits<int32_t>::max()},
       "the rest of the context", "Tokens to generate at most, reasoning among them"},
      {"tools", kAtResponses,
       OwnRule{Parse<ReadResponseTools>, kToolsSchema, kGoodTools, kBadTools}, "",
       "Functions and custom tools that the model may call; functions with strict get arguments "
       "by their schema, custom tools a text, which format may hold to a regex"},
      {"tool_choice", kAtResponses,
       OwnRule{Parse<ReadResponseToolChoice>, kToolChoiceSchema, R"(["none","auto"])",
               R"([7,"maybe",{},"required",{"type":"function","name":"f"}])"},
       "auto", "none, auto, required, a tool by type and name, or allowed_tools"},
      {"reasoning", kAtResponses,
       OwnRule{Parse<ReadReasoning>, kObjectSchema, R"([{},{"effort":"max","summary":"auto"}])",
               R"([7,{"effort":7},{"effort":"much"}])"},
       "",
       "effort is a variable of the template, reasoning_effort; there are no summaries, for "
       "reasoning is told as it is"},
      {"include", kAtResponses,
       OwnRule{Parse<ReadInclude>, kStringsSchema,
               R"([[],["message.output_text.logprobs","reasoning.encrypted_content"]])",
               R"([7,[7],["other"]])"},
       "", "message.output_text.logprobs: log-probabilities; the others have no effect"},
      {"top_logprobs", kAtResponses,
       OwnRule{Parse<ReadTopLogprobs>, kCountSchema, "[0,20]", R"([-1,21,"a"])"}, "0",
       "Log-probabilities, with those of so many most probable tokens"},
      {"truncation", kAtResponses,
       OwnRule{Parse<ReadTruncation>, kTruncationSchema, R"(["auto","disabled"])",
               R"([7,"other"])"},
       "disabled", "auto: what does not fit of the conversation's beginning is left out"},
      {"stream_options", kAtResponses,
       OwnRule{Parse<ReadStreamOptions>, kObjectSchema, R"([{},{"include_obfuscation":true}])",
               R"([7,{"include_obfuscation":7}])"},
       "", "include_obfuscation has no effect: events are not padded"},
      {"user", kAtResponses,
       OwnRule{Parse<ReadEchoed<&ResponseRequest::user>>, kTextSchema, R"(["a"])", "[7]"}, "",
       "Told again in the answer"},
      {"safety_identifier", kAtResponses,
       OwnRule{Parse<ReadEchoed<&ResponseRequest::safety_identifier>>, kTextSchema, R"(["a"])",
               "[7]"},
       "", "Told again in the answer"},
      {"prompt_cache_key", kAtResponses,
       OwnRule{Parse<ReadEchoed<&ResponseRequest::prompt_cache_key>>, kTextSchema, R"(["a"])",
               "[7]"},
       "", "Told again in the answer; prompts are reused by their tokens"},
      {"background", kAtResponses,
       RefusedRule{"the answer comes on the connection of its request", {"false"}}, "", ""},
      {"background_options", kAtResponses, RefusedRule{"there is no background", {"{}"}}, "", ""},
      {"conversation", kAtResponses, RefusedRule{"send previous_response_id", {}}, "", ""},
      {"prompt", kAtResponses, RefusedRule{"there are no stored prompts; send input", {}}, "", ""},
      {"messages", kAtResponses, RefusedRule{"send input", {"[]"}}, "", ""},
      {"max_tokens", kAtResponses, RefusedRule{"send max_output_tokens", {}}, "", ""},
      {"max_completion_tokens", kAtResponses, RefusedRule{"send max_output_tokens", {}}, "", ""},
      {"response_format", kAtResponses, RefusedRule{"send text.format", {}}, "", ""},
      {"reasoning_effort", kAtResponses, RefusedRule{"send reasoning.effort", {}}, "", ""},
      {"n", kAtResponses, RefusedRule{"an answer is one", {"1"}}, "", ""},
      {"logprobs", kAtResponses, RefusedRule{"send top_logprobs or include", {"false"}}, "", ""},
      {"max_tool_calls", kAtResponses, NoEffectRule{}, "", "Counts calls of tools of the server"},
      {"context_management", kAtResponses, NoEffectRule{}, "", "The conversation stays as sent"},
      {"prompt_cache_options", kAtResponses, NoEffectRule{}, "",
       "Every prompt is cached as it fits"},
      {"access_programs", kAtResponses, NoEffectRule{}, "", "Of the client's account"},
      {"image", kAtResponses, NoEffectRule{}, "", "Input has no images"},
  };
  return kRows;
}

}  // namespace baton
