#include "server/api/fields/anthropic_messages.h"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/answer_piece.h"
#include "server/api/fields/message_parser.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr char kBillingHeader[] = "x-anthropic-billing-header";

// A member of a block that is a string.
FieldProblem ReadMember(const std::string& path, const json::object& block, const char* name,
                        std::string* out) {
  const std::string member = absl::StrCat(path, ".", name);
  const json::value* value = block.if_contains(name);
  return value == nullptr ? Missing(member) : ReadText(member, *value, out);
}

FieldProblem ReadType(const std::string& path, const json::value& value, std::string* type) {
  if (!value.is_object()) return WrongType(path, value, "an object with a type");
  return ReadMember(path, value.get_object(), "type", type);
}

FieldProblem UnknownBlock(const std::string& path, const std::string& type) {
  return Unsupported(path + ".type",
                     absl::StrCat("Blocks of type ", Shown(json::value(json::string(type))),
                                  " are not supported here."));
}

// A text, or text blocks joined by line ends.
FieldProblem ReadTexts(const std::string& path, const json::value& value, std::string* joined) {
  if (value.is_string()) {
    *joined = TextOf(value.get_string());
    return std::nullopt;
  }
  if (!value.is_array()) return WrongType(path, value, "a string or a list of text blocks");
  bool is_first = true;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const std::string block_path = absl::StrCat(path, "[", i, "]");
    const json::value& block = value.get_array()[i];
    std::string type, text;
    if (auto problem = ReadType(block_path, block, &type)) return problem;
    if (type != "text") return UnknownBlock(block_path, type);
    if (auto problem = ReadMember(block_path, block.get_object(), "text", &text)) return problem;
    if (text.starts_with(kBillingHeader)) continue;
    absl::StrAppend(joined, is_first ? "" : "\n", text);
    is_first = false;
  }
  return std::nullopt;
}

// One message of Anthropic's as one or more of the chat's.
class Turn {
 public:
  Turn(const std::string& role, json::array* messages) : role_(role), messages_(messages) {}

  FieldProblem Add(const std::string& path, const json::value& block) {
    std::string type;
    if (auto problem = ReadType(path, block, &type)) return problem;
    const json::object& members = block.get_object();
    if (type == "text") return AddText(path, members);
    if (role_ == "user" && type == "tool_result") return AddResult(path, members);
    if (role_ == "assistant" && type == "tool_use") return AddCall(path, members);
    if (role_ == "assistant" && type == "thinking")
      return ReadMember(path, members, "thinking", &reasoning_);
    if (role_ == "assistant" && type == "redacted_thinking") return std::nullopt;
    return UnknownBlock(path, type);
  }
  // Results come first: they answer the calls of the turn before.
  void Finish() {
    if (!has_text_ && calls_.empty() && reasoning_.empty() && role_ == "user") return;
    json::object message{{"role", role_}};
    if (has_text_ || calls_.empty()) {
      message["content"] = text_;
    } else {
      message["content"] = nullptr;
    }
    if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    messages_->push_back(std::move(message));
  }

 private:
  FieldProblem AddText(const std::string& path, const json::object& block) {
    std::string text;
    if (auto problem = ReadMember(path, block, "text", &text)) return problem;
    absl::StrAppend(&text_, has_text_ ? "\n" : "", text);
    has_text_ = true;
    return std::nullopt;
  }
  FieldProblem AddResult(const std::string& path, const json::object& block) {
    std::string id, text;
    if (auto problem = ReadMember(path, block, "tool_use_id", &id)) return problem;
    const json::value* content = block.if_contains("content");
    if (content != nullptr && !content->is_null())
      if (auto problem = ReadTexts(path + ".content", *content, &text)) return problem;
    messages_->push_back(
        json::object{{"role", "tool"}, {"tool_call_id", CallIdOf(id)}, {"content", text}});
    return std::nullopt;
  }
  FieldProblem AddCall(const std::string& path, const json::object& block) {
    std::string id, name;
    if (auto problem = ReadMember(path, block, "id", &id)) return problem;
    if (auto problem = ReadMember(path, block, "name", &name)) return problem;
    const json::value* input = block.if_contains("input");
    if (input == nullptr) return Missing(path + ".input");
    if (!input->is_object()) return WrongType(path + ".input", *input, "an object");
    calls_.push_back(json::object{{"id", CallIdOf(id)},
                                  {"type", "function"},
                                  {"function", {{"name", name}, {"arguments", *input}}}});
    return std::nullopt;
  }

  const std::string role_;
  json::array* const messages_;
  bool has_text_ = false;
  std::string text_, reasoning_;
  json::array calls_;
};

FieldProblem AddMessage(const std::string& path, const json::value& value, json::array* messages) {
  if (!value.is_object()) return WrongType(path, value, "an object with role and content");
  const json::object& message = value.get_object();
  std::string role;
  if (auto problem = ReadMember(path, message, "role", &role)) return problem;
  if (role != "user" && role != "assistant" && role != "system")
    return WrongValue(path + ".role", message.at("role"), "user, assistant or system");
  const json::value* content = message.if_contains("content");
  if (content == nullptr) return Missing(path + ".content");
  if (content->is_string()) {
    messages->push_back(json::object{{"role", role}, {"content", *content}});
    return std::nullopt;
  }
  if (!content->is_array())
    return WrongType(path + ".content", *content, "a string or a list of blocks");
  Turn turn(role, messages);
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    if (auto problem = turn.Add(absl::StrCat(path, ".content[", i, "]"), content->get_array()[i]))
      return problem;
  }
  turn.Finish();
  return std::nullopt;
}

}  // namespace

FieldProblem ReadAnthropicMessages(const std::string& path, const json::value& value,
                                   ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of messages");
  json::array messages;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    if (auto problem = AddMessage(absl::StrCat(path, "[", i, "]"), value.get_array()[i], &messages))
      return problem;
  }
  // An answer that a client has begun is gone on with.
  const bool is_begun = !messages.empty() && messages.back().at("role") == "assistant" &&
                        !messages.back().as_object().contains("tool_calls");
  request->continue_final_message = is_begun;
  request->add_generation_prompt = !is_begun;
  return ParseMessages(path, messages, request);
}

FieldProblem ReadSystemPrompt(const std::string& path, const json::value& value,
                              ApiRequest* request) {
  std::string text;
  if (auto problem = ReadTexts(path, value, &text)) return problem;
  if (text.empty() || request->messages.empty()) return std::nullopt;
  const json::object message{{"role", "system"}, {"content", text}};
  request->messages = absl::StrCat("[", json::serialize(message), ",", request->messages.substr(1));
  return std::nullopt;
}

FieldProblem ReadAnthropicTools(const std::string& path, const json::value& value,
                                ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of tools");
  json::array tools;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    const std::string tool_path = absl::StrCat(path, "[", i, "]");
    const json::value& given = value.get_array()[i];
    if (!given.is_object()) return WrongType(tool_path, given, "an object with name and schema");
    const json::object& tool = given.get_object();
    const json::value* type = tool.if_contains("type");
    if (type != nullptr && !type->is_null() && *type != "custom") {
      return Unsupported(tool_path + ".type", absl::StrCat("Tools of type ", Shown(*type),
                                                           " are not supported; send custom."));
    }
    json::object function;
    const json::value* schema = tool.if_contains("input_schema");
    if (schema == nullptr) return Missing(tool_path + ".input_schema");
    if (!schema->is_object())
      return WrongType(tool_path + ".input_schema", *schema, "a JSON schema");
    for (const char* name : {"name", "description", "strict"})
      if (const json::value* member = tool.if_contains(name)) function[name] = *member;
    function["parameters"] = *schema;
    tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return ParseTools(path, tools, request);
}

FieldProblem ReadAnthropicToolChoice(const std::string& path, const json::value& value,
                                     ApiRequest* request) {
  std::string type;
  if (auto problem = ReadType(path, value, &type)) return problem;
  const json::object& choice = value.get_object();
  if (const json::value* single = choice.if_contains("disable_parallel_tool_use")) {
    bool disabled = false;
    if (auto problem = ReadBool(path + ".disable_parallel_tool_use", *single, &disabled))
      return problem;
    request->parallel_tool_calls = !disabled;
  }
  json::object spelled;
  if (type == "tool") {
    std::string name;
    if (auto problem = ReadMember(path, choice, "name", &name)) return problem;
    const auto& tools = request->callable_tools;
    if (!tools.empty() && std::none_of(tools.begin(), tools.end(),
                                       [&](const CallableTool& tool) { return tool.name == name; }))
      return WrongValue(path + ".name", choice.at("name"), "the name of one of tools");
    spelled["tool_choice"] =
        json::object{{"type", "function"}, {"function", {{"name", std::move(name)}}}};
  } else if (type == "auto" || type == "none") {
    spelled["tool_choice"] = type;
  } else if (type == "any") {
    spelled["tool_choice"] = "required";
  } else {
    return WrongValue(path + ".type", choice.at("type"), "auto, any, tool or none");
  }
  return CheckToolChoice(spelled, request);
}

}  // namespace baton
