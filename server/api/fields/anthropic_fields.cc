// Rows of Anthropic's API. Its messages come before the system prompt, which is put before them.
#include <boost/json.hpp>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/api/fields/anthropic_messages.h"
#include "server/api/fields/field.h"
#include "text/stop_matcher.h"

namespace baton {
namespace {

namespace json = boost::json;
using Limits = RequestLimits;

FieldProblem ReadStops(const std::string& path, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of strings");
  return ReadStrings(path, value.get_array(), kMaxStopStrings, kMaxStopBytes, &request->stop);
}

// A variable of templates; templates that do not know it stay as they are.
FieldProblem ReadThinking(const std::string& path, const json::value& value, ApiRequest* request) {
  const json::object* thinking = value.if_object();
  const json::value* type = thinking == nullptr ? nullptr : thinking->if_contains("type");
  if (type == nullptr) return WrongType(path, value, "an object with a type");
  if (*type != "enabled" && *type != "disabled" && *type != "adaptive")
    return WrongValue(path + ".type", *type, "enabled, disabled or adaptive");
  if (const json::value* budget = thinking->if_contains("budget_tokens");
      budget != nullptr && !budget->is_null() && *type == "enabled") {
    constexpr auto kMax = static_cast<int64_t>(Limits::kReasoningTokens.max);
    int64_t tokens = 0;
    if (auto problem = ReadInt(path + ".budget_tokens", *budget, 1, kMax, &tokens)) return problem;
    request->reasoning_budget = tokens;
  }
  request->thinking_is_off = *type == "disabled";
  if (*type != "adaptive")
    request->template_variables =
        json::serialize(json::object{{"enable_thinking", *type == "enabled"}});
  return std::nullopt;
}

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

constexpr char kMessagesSchema[] = R"({"type":"array","minItems":1,"items":{"type":"object",)"
                                   R"("required":["role","content"]}})";
constexpr char kSystemSchema[] =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})";
constexpr char kToolsSchema[] = R"({"type":"array","items":{"type":"object",)"
                                R"("required":["name","input_schema"]}})";
constexpr char kObjectSchema[] = R"({"type":"object","required":["type"]})";
constexpr char kStopsSchema[] =
    R"({"type":"array","maxItems":16,"items":{"type":"string","minLength":1}})";

}  // namespace

std::span<const Field> AnthropicFields() {
  static const std::vector<Field> kRows = {
      {"model", kAtConversation, TextRule{&ApiRequest::model}, "the served model",
       "A name of the served model"},
      {"max_tokens", kAtAnthropic, IntRule{&ApiRequest::max_tokens, 1, kMaxInt}, "",
       "Needed: tokens to generate at most"},
      {"messages", kAtConversation,
       OwnRule{Parse<ReadAnthropicMessages>, kMessagesSchema,
               R"([[{"role":"user","content":"a"}],)"
               R"([{"role":"user","content":[{"type":"text","text":"a"}]}]])",
               R"([7,[],[7],[{"role":"king","content":"a"}],[{"role":"user"}],)"
               R"([{"role":"user","content":[{"type":"image"}]}],)"
               R"([{"role":"user","content":[{"type":"tool_result"}]}]])"},
       "",
       "Needed: the conversation, as texts or blocks (text, tool_use, tool_result, thinking). A "
       "last message of the assistant is gone on with"},
      {"system", kAtConversation,
       OwnRule{Parse<ReadSystemPrompt>, kSystemSchema, R"(["a",[{"type":"text","text":"a"}]])",
               R"([7,[7],[{"type":"image"}]])"},
       "",
       "What the model is to know first; blocks that begin with x-anthropic-billing-header are "
       "left "
       "out"},
      {"tools", kAtConversation,
       OwnRule{Parse<ReadAnthropicTools>, kToolsSchema,
               R"([[],[{"name":"f","input_schema":{"type":"object"}}]])",
               R"([7,[7],[{"name":"f"}],[{"type":"web_search_20250305","name":"web_search"}]])"},
       "", "Functions that the model may call"},
      {"tool_choice", kAtConversation,
       OwnRule{Parse<ReadAnthropicToolChoice>, kObjectSchema, R"([{"type":"none"}])",
               R"([7,{},{"type":"maybe"},{"type":"any"},{"type":"tool","name":"f"}])"},
       "auto with tools",
       "auto, any, tool (by name) or none; disable_parallel_tool_use: at most one call"},
      {"stop_sequences", kAtAnthropic,
       OwnRule{Parse<ReadStops>, kStopsSchema, R"([[],["a"]])", R"(["a",[7],[""]])"}, "",
       "Texts that end the answer; they are not part of it"},
      {"stream", kAtAnthropic, BoolRule{&ApiRequest::stream}, "false",
       "The answer comes as server-sent events"},
      {"temperature", kAtAnthropic, NumberRule{&ApiRequest::temperature, {"temperature", 0, 1}},
       "of generation_config.json, else 1", "0: always the most probable token"},
      {"top_p", kAtAnthropic, NumberRule{&ApiRequest::top_p, {"top_p", 0, Limits::kTopP.max}, true},
       "of generation_config.json, else 1",
       "Draws from the most probable tokens that together have this share"},
      {"top_k", kAtAnthropic, IntRule{&ApiRequest::top_k, 0, kMaxInt},
       "of generation_config.json, else 0", "Draws from so many most probable tokens; 0: from all"},
      {"thinking", kAtConversation,
       OwnRule{
           Parse<ReadThinking>, kObjectSchema,
           R"([{"type":"enabled","budget_tokens":1024},{"type":"disabled"},{"type":"adaptive"}])",
           R"([7,{},{"type":"much"},{"type":"enabled","budget_tokens":0}])"},
       "",
       "enabled and disabled are enable_thinking of the template; after budget_tokens tokens of "
       "reasoning the model's end of reasoning follows"},
      {"metadata", kAtConversation, NoEffectRule{}, "", "Of the client's account"},
      {"service_tier", kAtConversation, NoEffectRule{}, "", "Of the client's account"},
      {"inference_geo", kAtConversation, NoEffectRule{}, "", "Of the client's account"},
      {"context_management", kAtConversation, NoEffectRule{}, "", "The conversation stays as sent"},
      {"cache_control", kAtConversation, NoEffectRule{}, "", "Every prompt is cached as it fits"},
      {"container", kAtConversation, RefusedRule{"there are no server tools", {}}, "", ""},
      {"mcp_servers", kAtConversation, RefusedRule{"there are no server tools", {"[]"}}, "", ""},
      {"output_format", kAtConversation, RefusedRule{"answers of this API are not constrained", {}},
       "", ""},
      {"output_config", kAtConversation,
       RefusedRule{"answers of this API are not constrained", {"{}"}}, "", ""},
  };
  return kRows;
}

}  // namespace baton
