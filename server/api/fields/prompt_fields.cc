// Rows of what becomes the prompt.
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"
#include "server/api/fields/message_parser.h"

namespace baton {
namespace {

namespace json = boost::json;
using Limits = RequestLimits;

using Prompt = std::variant<std::string, std::vector<int32_t>>;

FieldProblem ReadPromptIds(const std::string& path, const json::value& value, Prompt* prompt) {
  if (value.get_array().empty()) return InvalidField(path, path + " must not be empty.");
  return ReadTokenIds(path, value, &prompt->emplace<std::vector<int32_t>>());
}

// One entry of a list of prompts.
FieldProblem ReadPrompt(const std::string& path, const json::value& value, Prompt* prompt) {
  if (value.is_array()) return ReadPromptIds(path, value, prompt);
  if (!value.is_string()) return WrongType(path, value, "a string or a list of token ids");
  *prompt = TextOf(value.get_string());
  return std::nullopt;
}

// A string, a list of token ids, or a list of both.
FieldProblem ParsePrompt(const std::string& path, const json::value& value, const RequestSettings&,
                         ApiRequest* request) {
  request->prompts.clear();
  const json::array* list = value.if_array();
  const bool is_one = list == nullptr || list->empty() || list->front().is_number();
  if (is_one) return ReadPrompt(path, value, &request->prompts.emplace_back());
  constexpr auto kMaxPrompts = static_cast<int64_t>(Limits::kPrompts.max);
  if (static_cast<int64_t>(list->size()) > kMaxPrompts)
    return TooMany(path, kMaxPrompts, "entries", list->size());
  request->prompts.resize(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string entry = absl::StrCat(path, "[", i, "]");
    if (auto problem = ReadPrompt(entry, (*list)[i], &request->prompts[i])) return problem;
  }
  return std::nullopt;
}

FieldProblem ParseOneText(const std::string& path, const json::value& value, const RequestSettings&,
                          ApiRequest* request) {
  request->prompts.clear();
  return ReadText(path, value, &request->prompts.emplace_back().emplace<std::string>());
}

FieldProblem ParseContent(const std::string& path, const json::value& value, const RequestSettings&,
                          ApiRequest* request) {
  return ReadText(path, value, &request->content.emplace());
}

FieldProblem ParseTokens(const std::string& path, const json::value& value, const RequestSettings&,
                         ApiRequest* request) {
  return ReadTokenIds(path, value, &request->tokens);
}

// Read once the tools are known (CheckToolChoice).
FieldProblem ParseNothing(const std::string&, const json::value&, const RequestSettings&,
                          ApiRequest*) {
  return std::nullopt;
}

FieldProblem ParseTemplateVariables(const std::string& path, const json::value& value,
                                    const RequestSettings&, ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, value, "an object");
  const json::value* thinking = value.get_object().if_contains("enable_thinking");
  request->thinking_is_off = thinking != nullptr && *thinking == false;
  if (!value.get_object().empty()) request->template_variables = json::serialize(value);
  return std::nullopt;
}

// A variable of templates, beside those of chat_template_kwargs.
FieldProblem ParseReasoningEffort(const std::string& path, const json::value& value,
                                  const RequestSettings&, ApiRequest* request) {
  static constexpr const char* kWanted = "one of none, minimal, low, medium, high, xhigh";
  if (!value.is_string()) return WrongType(path, value, kWanted);
  const json::string& effort = value.get_string();
  if (effort != "none" && effort != "minimal" && effort != "low" && effort != "medium" &&
      effort != "high" && effort != "xhigh")
    return WrongValue(path, value, kWanted);
  return SetTemplateVariable(path, value, request);
}

// As vLLM: a text of any length above 0, here bounded.
FieldProblem ParseSalt(const std::string& path, const json::value& value, const RequestSettings&,
                       ApiRequest* request) {
  constexpr size_t kMaxBytes = 1024;
  if (auto problem = ReadText(path, value, &request->cache_salt)) return problem;
  const size_t n = request->cache_salt.size();
  if (n > 0 && n <= kMaxBytes) return std::nullopt;
  return InvalidField(path,
                      absl::StrCat(path, " must have 1 to ", kMaxBytes, " bytes; got ", n, "."));
}

// -1: as many as fit.
FieldProblem ParseTruncation(const std::string& path, const json::value& value,
                             const RequestSettings&, ApiRequest* request) {
  const auto max = static_cast<int64_t>(Limits::kPromptTokens.max);
  int64_t kept = 0;
  if (auto problem = ReadInt(path, value, -1, max, &kept)) return problem;
  if (kept == 0) return WrongValue(path, value, absl::StrCat("-1 or an integer from 1 to ", max));
  request->truncate_prompt_tokens = kept;
  return std::nullopt;
}

FieldProblem ParseSide(const std::string& path, const json::value& value, const RequestSettings&,
                       ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, value, "left or right");
  if (value != "left" && value != "right") return WrongValue(path, value, "left or right");
  request->truncate_left = value == "left";
  return std::nullopt;
}

constexpr char kPromptSchema[] =
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"integer",)"
    R"("minimum":0}},{"type":"array","minItems":1,"maxItems":16,"items":{"anyOf":[)"
    R"({"type":"string"},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}}]}}]})";
constexpr char kMessagesSchema[] =
    R"({"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}})";
constexpr char kToolsSchema[] = R"({"type":"array","items":{"$ref":"#/components/schemas/Tool"}})";
constexpr char kToolChoiceSchema[] =
    R"({"anyOf":[{"type":"string","enum":["none","auto","required"]},{"type":"object"}]})";
constexpr char kObjectSchema[] = R"({"type":"object"})";
constexpr char kObjectsSchema[] = R"({"type":"array","items":{"type":"object"}})";
constexpr char kTextSchema[] = R"({"type":"string"})";
constexpr char kIdsSchema[] = R"({"type":"array","items":{"type":"integer","minimum":0}})";
constexpr char kEffortSchema[] =
    R"({"type":"string","enum":["none","minimal","low","medium","high","xhigh"]})";
constexpr char kTruncationSchema[] =
    R"({"type":"integer","minimum":-1,"maximum":4194303,"not":{"const":0}})";
constexpr char kSaltSchema[] = R"({"type":"string","minLength":1,"maxLength":1024})";
constexpr char kSideSchema[] = R"({"type":"string","enum":["left","right"]})";

constexpr char kGoodMessages[] =
    R"([[{"role":"user","content":"a"}],[{"role":"user","content":[{"type":"text","text":"a"}]}]])";
constexpr char kBadMessages[] =
    R"(["a",[],[7],[{"role":"king","content":"a"}],[{"role":"user","content":7}],)"
    R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{a"}}]}]])";
constexpr char kBadTools[] =
    R"([{},[7],[{"x":1}],[{"type":"web_search"}],[{"type":"function","function":{}}]])";
constexpr char kGoodTools[] = R"([[],[{"type":"function","function":{"name":"f"}}]])";

}  // namespace

std::span<const Field> PromptFields() {
  static const std::vector<Field> kRows = {
      {"model", kAtOpenAi | kAtTokenize | kAtDetokenize | kAtApplyTemplate,
       TextRule{&ApiRequest::model}, "the served model", "A name of the served model"},
      {"prompt", kAtCompletions,
       OwnRule{ParsePrompt, kPromptSchema, R"(["a",[1,2],["a"],[[1],"a"]])",
               R"([7,{},[],[[]],[-1],[1,"a"],[true],["a","a","a","a","a","a","a","a","a","a",)"
               R"("a","a","a","a","a","a","a"]])"},
       "", "Needed: text, token ids, or up to 16 of either; each prompt has n choices"},
      {"prompt", kAtTokenize, OwnRule{ParseOneText, kTextSchema, R"(["a",""])", "[7,[1]]"}, "",
       "Text to tokenize (or messages, or content)"},
      {"content", kAtTokenize, OwnRule{ParseContent, kTextSchema, R"(["a",""])", "[7,[1]]"}, "",
       "Text to tokenize, as llama.cpp spells it: the answer has its form"},
      {"tokens", kAtDetokenize, OwnRule{ParseTokens, kIdsSchema, "[[],[1,2]]", R"([7,["a"],[-1]])"},
       "", "Needed: token ids"},
      {"messages", kAtMessages,
       OwnRule{Parse<ParseMessages>, kMessagesSchema, kGoodMessages, kBadMessages}, "",
       "Needed: the conversation. Contents are text; arguments of tool calls are a JSON object as "
       "a string, and reach templates as an object"},
      {"tools", kAtMessages, OwnRule{Parse<ParseTools>, kToolsSchema, kGoodTools, kBadTools}, "",
       "Functions that the model may call; those with strict get arguments by their schema"},
      {"tools", kAtCompletions, RefusedRule{"tools belong to /v1/chat/completions", {"[]"}}, "",
       ""},
      {"tool_choice", kAtChat,
       OwnRule{ParseNothing, kToolChoiceSchema, R"(["none"])", R"([7,"maybe",{}])"},
       "auto with tools",
       "none keeps the tools from the template, auto leaves the choice to the model; required, a "
       "named tool and allowed_tools hold by construction"},
      {"tool_choice", kAtCompletions,
       RefusedRule{"tools belong to /v1/chat/completions", {"\"none\"", "\"auto\""}}, "", ""},
      {"parallel_tool_calls", kAtChat | kAtResponses, BoolRule{&ApiRequest::parallel_tool_calls},
       "true", "false: at most one call"},
      {"functions", kAtOpenAi, RefusedRule{"send tools", {"[]"}}, "", ""},
      {"function_call", kAtOpenAi,
       RefusedRule{"send tools and tool_choice", {"\"none\"", "\"auto\""}}, "", ""},
      {"documents", kAtMessages,
       OwnRule{Parse<ParseDocuments>, kObjectsSchema, R"([[],[{"text":"a"}]])", "[7,[7]]"}, "",
       "Documents for the template"},
      {"chat_template_kwargs", kAtMessages | kAtResponses,
       OwnRule{ParseTemplateVariables, kObjectSchema, R"([{},{"enable_thinking":false}])",
               R"([7,"a",[]])"},
       "", "Further variables of the template"},
      {"reasoning_effort", kAtMessages,
       OwnRule{ParseReasoningEffort, kEffortSchema, R"(["none","high","xhigh"])", R"([7,"much"])"},
       "", "A variable of the template; templates that do not know it stay as they are"},
      {"add_generation_prompt", kAtMessages, BoolRule{&ApiRequest::add_generation_prompt},
       "true, but false with continue_final_message", "The prompt ends where an answer begins"},
      {"continue_final_message", kAtMessages, BoolRule{&ApiRequest::continue_final_message},
       "false",
       "The prompt ends inside the last message, which the answer continues; not together with "
       "add_generation_prompt"},
      {"add_special_tokens", kAtGeneration | kAtTokenize, BoolRule{&ApiRequest::add_special_tokens},
       "true for prompts, false for messages", "What the tokenizer adds to a text (begin of text)"},
      {"add_special_tokens", kAtResponses | kAtAnthropic,
       RefusedRule{"the template writes special tokens itself", {"false"}}, "", ""},
      {"truncate_prompt_tokens", kAtGeneration,
       OwnRule{ParseTruncation, kTruncationSchema, "[-1,1,4194303]", R"([-2,0,4194304,"a"])"}, "",
       "Keeps so many tokens of a longer prompt; -1: as many as fit"},
      {"truncation_side", kAtGeneration,
       OwnRule{ParseSide, kSideSchema, R"(["left","right"])", R"(["up",7])"}, "left",
       "Where truncate_prompt_tokens takes tokens away"},
      {"cache_salt", kAtOpenAi | kAtAnthropic,
       OwnRule{ParseSalt, kSaltSchema, R"(["a"])", R"([7,""])"}, "",
       "Cached prompts are shared only among requests with the same salt"},
      {"return_token_strs", kAtTokenize, BoolRule{&ApiRequest::token_strings}, "false",
       "The answer has token_strs, the text of each token"},
      {"with_pieces", kAtTokenize, BoolRule{&ApiRequest::with_pieces}, "false",
       "With content: each token is an object with id and piece"},
      {"add_special", kAtTokenize, BoolRule{&ApiRequest::add_special_tokens}, "false",
       "With content: add_special_tokens as llama.cpp spells it"},
      {"parse_special", kAtTokenize,
       RefusedRule{"text that spells a special token is that token", {"true"}}, "", ""},
      {"chat_template", kAtMessages | kAtResponses,
       RefusedRule{"templates are the operator's; send chat_template_kwargs", {}}, "", ""},
      {"prompt_embeds", kAtCompletions, RefusedRule{"prompts are text or token ids", {}}, "", ""},
      {"suffix", kAtOpenAi, RefusedRule{"the end of the text cannot be given", {"\"\""}}, "", ""},
      {"mm_processor_kwargs", kAtOpenAi, RefusedRule{"prompts are text", {"{}"}}, "", ""},
      {"media_io_kwargs", kAtOpenAi, RefusedRule{"prompts are text", {"{}"}}, "", ""},
      {"image_data", kAtOpenAi, RefusedRule{"prompts are text", {"[]"}}, "", ""},
      {"input_ids", kAtOpenAi, RefusedRule{"send token ids as prompt to /v1/completions", {"[]"}},
       "", ""},
      {"tool_prompt", kAtOpenAi, RefusedRule{"templates are the operator's", {"\"\""}}, "", ""},
  };
  return kRows;
}

}  // namespace baton
