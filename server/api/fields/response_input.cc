#include "server/api/fields/response_input.h"

#include <boost/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/conversation.h"
#include "server/api/fields/message_parser.h"
#include "server/api/json_document.h"
#include "server/api/response_item.h"

namespace baton {
namespace {

namespace json = boost::json;

// A member of an item that is a string.
FieldProblem ReadMember(const std::string& path, const json::object& item, const char* name,
                        std::string* out) {
  const std::string member = absl::StrCat(path, ".", name);
  const json::value* value = item.if_contains(name);
  return value == nullptr ? Missing(member) : ReadText(member, *value, out);
}

// Parts that are text, each as the chat has it; one alone is its text.
FieldProblem ReadParts(const std::string& path, const json::array& parts, json::value* content) {
  json::array texts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_path = absl::StrCat(path, "[", i, "]");
    const json::object* part = parts[i].if_object();
    if (part == nullptr) return WrongType(part_path, parts[i], "an object with a type");
    std::string type, text;
    if (auto problem = ReadMember(part_path, *part, "type", &type)) return problem;
    const bool is_refusal = type == "refusal";
    if (type != "input_text" && type != "output_text" && type != "text" && !is_refusal) {
      return Unsupported(part_path + ".type",
                         absl::StrCat("Parts of type ", Shown(json::value(json::string(type))),
                                      " are not supported; send input_text."));
    }
    if (auto problem = ReadMember(part_path, *part, is_refusal ? "refusal" : "text", &text))
      return problem;
    texts.push_back(json::object{{"type", "text"}, {"text", text}});
  }
  if (texts.size() == 1) {
    *content = texts[0].at("text");
  } else if (texts.empty()) {
    *content = "";
  } else {
    *content = std::move(texts);
  }
  return std::nullopt;
}

// member: of the item, a string or a list of parts.
FieldProblem ReadContent(const std::string& path, const json::object& item, const char* member,
                         json::value* content) {
  const std::string member_path = absl::StrCat(path, ".", member);
  const json::value* value = item.if_contains(member);
  if (value == nullptr) return Missing(member_path);
  if (value->is_array()) return ReadParts(member_path, value->get_array(), content);
  if (!value->is_string())
    return WrongType(member_path, *value, "a string or a list of text parts");
  *content = *value;
  return std::nullopt;
}

FieldProblem AddMessage(const std::string& path, const json::object& item,
                        Conversation* conversation) {
  std::string role;
  if (auto problem = ReadMember(path, item, "role", &role)) return problem;
  if (role != "user" && role != "assistant" && role != "system" && role != "developer")
    return WrongValue(path + ".role", item.at("role"), "user, assistant, system or developer");
  json::value content;
  if (auto problem = ReadContent(path, item, "content", &content)) return problem;
  if (role == "assistant") {
    conversation->AddText(std::move(content));
  } else {
    conversation->AddMessage(role, std::move(content));
  }
  return std::nullopt;
}

FieldProblem AddCall(const std::string& path, const json::object& item, bool is_custom,
                     Conversation* conversation) {
  std::string id, name, text;
  const char* member = is_custom ? kCustomInput : "arguments";
  if (auto problem = ReadMember(path, item, "call_id", &id)) return problem;
  if (auto problem = ReadMember(path, item, "name", &name)) return problem;
  if (auto problem = ReadMember(path, item, member, &text)) return problem;
  json::object arguments;
  if (is_custom) {
    arguments[kCustomInput] = json::string(text);
  } else if (!text.empty()) {
    const std::string member_path = absl::StrCat(path, ".", member);
    auto parsed = ParseJson(text, member_path);
    if (!parsed.ok()) return InvalidField(member_path, std::string(parsed.status().message()));
    if (!parsed->is_object())
      return WrongValue(member_path, item.at(member), "a JSON object as a string");
    arguments = std::move(parsed->get_object());
  }
  conversation->AddCall(id, name, std::move(arguments));
  return std::nullopt;
}

FieldProblem AddOutput(const std::string& path, const json::object& item,
                       Conversation* conversation) {
  std::string id;
  json::value content;
  if (auto problem = ReadMember(path, item, "call_id", &id)) return problem;
  if (auto problem = ReadContent(path, item, "output", &content)) return problem;
  conversation->AddResult(id, std::move(content));
  return std::nullopt;
}

// Reasoning that another server encrypted, or only summed up, is nothing to this one's model.
FieldProblem AddReasoning(const std::string& path, const json::object& item,
                          Conversation* conversation) {
  const json::value* content = item.if_contains("content");
  if (content == nullptr || content->is_null()) return std::nullopt;
  const std::string content_path = path + ".content";
  if (!content->is_array()) return WrongType(content_path, *content, "a list of parts");
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    const std::string part_path = absl::StrCat(content_path, "[", i, "]");
    const json::object* part = content->get_array()[i].if_object();
    if (part == nullptr)
      return WrongType(part_path, content->get_array()[i], "an object with a text");
    std::string text;
    if (auto problem = ReadMember(part_path, *part, "text", &text)) return problem;
    conversation->AddReasoning(text);
  }
  return std::nullopt;
}

FieldProblem AddItem(const std::string& path, const json::value& value,
                     Conversation* conversation) {
  const json::object* item = value.if_object();
  if (item == nullptr) return WrongType(path, value, "an object with a type");
  std::string type = "message";
  if (item->contains("type"))
    if (auto problem = ReadMember(path, *item, "type", &type)) return problem;
  if (type == "message") return AddMessage(path, *item, conversation);
  if (type == "function_call") return AddCall(path, *item, false, conversation);
  if (type == "custom_tool_call") return AddCall(path, *item, true, conversation);
  if (type == "function_call_output" || type == "custom_tool_call_output")
    return AddOutput(path, *item, conversation);
  if (type == "reasoning") return AddReasoning(path, *item, conversation);
  return Unsupported(path + ".type",
                     absl::StrCat("Items of type ", Shown(json::value(json::string(type))),
                                  " are not supported; send message, reasoning, function_call, "
                                  "custom_tool_call or their outputs."));
}

}  // namespace

FieldProblem ReadResponseInput(const std::string& path, const json::value& value,
                               ApiRequest* request) {
  Conversation conversation;
  if (value.is_string()) {
    conversation.AddMessage("user", value);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.get_array().size(); ++i) {
      if (auto problem =
              AddItem(absl::StrCat(path, "[", i, "]"), value.get_array()[i], &conversation))
        return problem;
    }
  } else {
    return WrongType(path, value, "a string or a list of items");
  }
  request->response.conversation = json::serialize(conversation.Take());
  request->response.input = json::serialize(value);
  return std::nullopt;
}

std::optional<ApiError> ReadConversation(size_t n_left_out, ApiRequest* request) {
  const ResponseRequest& response = request->response;
  auto conversation = ParseOwnJson(response.conversation);
  if (!conversation.ok())
    return InvalidField("input", std::string(conversation.status().message()));
  json::array messages;
  if (!response.instructions.empty())
    messages.push_back(json::object{{"role", "system"}, {"content", response.instructions}});
  json::array& all = conversation->get_array();
  if (response.truncates && n_left_out == 0) {
    request->response.message_bytes.clear();
    for (const json::value& message : all)
      request->response.message_bytes.push_back(json::serialize(message).size());
  }
  for (size_t i = n_left_out; i < all.size(); ++i) messages.push_back(std::move(all[i]));
  return ParseMessages("input", messages, request);
}

}  // namespace baton
