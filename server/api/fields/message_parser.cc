#include "server/api/fields/message_parser.h"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

ApiError Missing(const std::string& path) {
  return InvalidField(path, path + " is needed.", "missing_required_parameter");
}

// Text parts are joined by line ends into *joined; other kinds are refused by name.
FieldProblem JoinParts(const std::string& path, const json::array& parts, std::string* joined) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_path = absl::StrCat(path, "[", i, "]");
    const json::object* part = parts[i].if_object();
    if (part == nullptr) return WrongType(part_path, parts[i], "an object with a type");
    const json::value* type = part->if_contains("type");
    if (type == nullptr || !type->is_string()) {
      return InvalidField(part_path + ".type", part_path + ".type must be \"text\".",
                          "invalid_type");
    }
    if (*type != "text") {
      return Unsupported(part_path + ".type", absl::StrCat("Parts of type ", Shown(*type),
                                                           " are not supported; send text."));
    }
    const json::value* text = part->if_contains("text");
    if (text == nullptr || !text->is_string()) {
      return InvalidField(part_path + ".text", part_path + ".text must be a string.",
                          "invalid_type");
    }
    absl::StrAppend(joined, i == 0 ? "" : "\n", TextOf(text->get_string()));
  }
  return std::nullopt;
}

// Templates read the arguments of a call as an object; the API writes them as a JSON string.
FieldProblem ParseArguments(const std::string& path, json::value* arguments) {
  if (arguments->is_object()) return std::nullopt;
  if (!arguments->is_string()) return WrongType(path, *arguments, "a JSON object as a string");
  const std::string text = TextOf(arguments->get_string());
  if (text.empty()) {
    arguments->emplace_object();
    return std::nullopt;
  }
  auto parsed = ParseJson(text, path);
  if (!parsed.ok()) return InvalidField(path, std::string(parsed.status().message()));
  if (!parsed->is_object()) return WrongValue(path, *arguments, "a JSON object as a string");
  *arguments = *std::move(parsed);
  return std::nullopt;
}

FieldProblem ParseFunctionCall(const std::string& path, json::value* value) {
  json::object* function = value->if_object();
  if (function == nullptr) return WrongType(path, *value, "an object with name and arguments");
  const json::value* name = function->if_contains("name");
  if (name == nullptr) return Missing(path + ".name");
  if (!name->is_string()) return WrongType(path + ".name", *name, "a string");
  json::value* arguments = function->if_contains("arguments");
  if (arguments == nullptr || arguments->is_null()) {
    (*function)["arguments"].emplace_object();
    return std::nullopt;
  }
  return ParseArguments(path + ".arguments", arguments);
}

FieldProblem ParseToolCalls(const std::string& path, json::value* value) {
  if (value->is_null()) return std::nullopt;
  json::array* calls = value->if_array();
  if (calls == nullptr) return WrongType(path, *value, "a list of tool calls");
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string call_path = absl::StrCat(path, "[", i, "]");
    json::object* call = (*calls)[i].if_object();
    if (call == nullptr) return WrongType(call_path, (*calls)[i], "an object with a function");
    const json::value* type = call->if_contains("type");
    if (type != nullptr && !type->is_null() && *type != "function") {
      return Unsupported(call_path + ".type", absl::StrCat("Tool calls of type ", Shown(*type),
                                                           " are not supported; send function."));
    }
    json::value* function = call->if_contains("function");
    if (function == nullptr) return Missing(call_path + ".function");
    if (auto problem = ParseFunctionCall(call_path + ".function", function)) return problem;
  }
  return std::nullopt;
}

// *joined: the content if it was a list of parts.
FieldProblem ParseMessage(const std::string& path, json::value* value,
                          std::optional<std::string>* joined) {
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
    return WrongValue(path + ".role", *role,
                      "one of developer, system, user, assistant, tool, function");
  }
  if (*role == "developer") *role = "system";
  const bool is_assistant = *role == "assistant";
  if (json::value* calls = message->if_contains("tool_calls")) {
    if (auto problem = ParseToolCalls(path + ".tool_calls", calls)) return problem;
  }
  const json::value* content = message->if_contains("content");
  if (content == nullptr || content->is_null()) {  // an assistant may have only called tools
    if (is_assistant) return std::nullopt;
    return Missing(path + ".content");
  }
  if (content->is_string()) return std::nullopt;
  if (content->is_array())
    return JoinParts(path + ".content", content->get_array(), &joined->emplace());
  return WrongType(path + ".content", *content, "a string, null or a list of text parts");
}

// A function with a name, as the tools of a request are.
FieldProblem CheckTool(const std::string& path, const json::value& value) {
  const json::object* tool = value.if_object();
  if (tool == nullptr) return WrongType(path, value, "an object with type and function");
  const json::value* type = tool->if_contains("type");
  if (type == nullptr) return Missing(path + ".type");
  if (!type->is_string()) return WrongType(path + ".type", *type, "a string");
  if (*type != "function") {
    return Unsupported(path + ".type", absl::StrCat("Tools of type ", Shown(*type),
                                                    " are not supported; send function."));
  }
  const json::value* function = tool->if_contains("function");
  if (function == nullptr) return Missing(path + ".function");
  const std::string function_path = path + ".function";
  if (!function->is_object()) return WrongType(function_path, *function, "an object with a name");
  const json::object& fields = function->get_object();
  const json::value* name = fields.if_contains("name");
  if (name == nullptr) return Missing(function_path + ".name");
  if (!name->is_string() || name->get_string().empty())
    return WrongType(function_path + ".name", *name, "a string that is not empty");
  const json::value* parameters = fields.if_contains("parameters");
  if (parameters != nullptr && !parameters->is_null() && !parameters->is_object())
    return WrongType(function_path + ".parameters", *parameters, "an object");
  return std::nullopt;
}

// The name of the tool that tool_choice names: {"type":"function","function":{"name":...}}.
FieldProblem NameOfChoice(const json::object& choice, std::string* name) {
  const json::value* type = choice.if_contains("type");
  if (type == nullptr) return Missing("tool_choice.type");
  if (*type != "function") {
    return Unsupported("tool_choice.type", absl::StrCat("A tool_choice of type ", Shown(*type),
                                                        " is not supported by this server."));
  }
  const json::value* function = choice.if_contains("function");
  if (function == nullptr) return Missing("tool_choice.function");
  if (!function->is_object())
    return WrongType("tool_choice.function", *function, "an object with a name");
  const json::value* given = function->get_object().if_contains("name");
  if (given == nullptr) return Missing("tool_choice.function.name");
  return ReadText("tool_choice.function.name", *given, name);
}

// Whether a tool of `fields` has the name.
bool HasTool(const json::object& fields, const std::string& name) {
  const json::array& tools = fields.at("tools").get_array();
  return std::any_of(tools.begin(), tools.end(), [&](const json::value& tool) {
    return tool.at("function").at("name") == name.c_str();
  });
}

}  // namespace

FieldProblem ParseMessages(const std::string& path, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of messages");
  json::array messages = value.get_array();
  if (messages.empty()) return InvalidField(path, path + " must not be empty.");
  std::vector<std::optional<std::string>> joined(messages.size());
  bool has_parts = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (auto problem = ParseMessage(absl::StrCat(path, "[", i, "]"), &messages[i], &joined[i]))
      return problem;
    has_parts = has_parts || joined[i];
  }
  if (has_parts) request->messages_in_parts = json::serialize(messages);
  for (size_t i = 0; i < messages.size(); ++i)
    if (joined[i]) messages[i].get_object()["content"] = json::string(*joined[i]);
  request->messages = json::serialize(messages);
  return std::nullopt;
}

FieldProblem ParseTools(const std::string& path, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of tools");
  const json::array& tools = value.get_array();
  for (size_t i = 0; i < tools.size(); ++i)
    if (auto problem = CheckTool(absl::StrCat(path, "[", i, "]"), tools[i])) return problem;
  if (!tools.empty()) request->tools = json::serialize(tools);
  return std::nullopt;
}

FieldProblem ParseDocuments(const std::string& path, const json::value& value,
                            ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of documents");
  const json::array& documents = value.get_array();
  for (size_t i = 0; i < documents.size(); ++i) {
    if (!documents[i].is_object())
      return WrongType(absl::StrCat(path, "[", i, "]"), documents[i], "an object");
  }
  if (!documents.empty()) request->documents = json::serialize(documents);
  return std::nullopt;
}

FieldProblem CheckToolChoice(const json::object& fields, ApiRequest* request) {
  const json::value* choice = fields.if_contains("tool_choice");
  if (choice == nullptr || choice->is_null()) return std::nullopt;
  if (*choice == "none") {
    request->tools.clear();
    return std::nullopt;
  }
  static constexpr const char* kWanted =
      "none, auto, required or {\"type\":\"function\",\"function\":{\"name\":...}}";
  const bool is_named = choice->is_object();
  if (!is_named && !choice->is_string()) return WrongType("tool_choice", *choice, kWanted);
  if (!is_named && *choice != "auto" && *choice != "required")
    return WrongValue("tool_choice", *choice, kWanted);
  if (request->tools.empty())
    return InvalidField("tool_choice", "tool_choice is given without tools; send tools too.");
  if (is_named) {
    std::string name;
    if (auto problem = NameOfChoice(choice->get_object(), &name)) return problem;
    if (!HasTool(fields, name)) {
      return InvalidField(
          "tool_choice.function.name",
          absl::StrCat("tool_choice.function.name must be the name of one of tools; got ",
                       Shown(json::value(json::string(name))), "."));
    }
  }
  if (*choice == "auto") return std::nullopt;
  return Unsupported("tool_choice",
                     absl::StrCat("tool_choice is not supported by this server beyond none and "
                                  "auto: calls cannot be enforced yet (got ",
                                  Shown(*choice), ")."));
}

}  // namespace baton
