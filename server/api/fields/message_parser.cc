#include "server/api/fields/message_parser.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

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

// The reasoning of an earlier answer, by any of its names: templates join it with texts.
FieldProblem CheckReasoning(const std::string& path, const json::object& message) {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const json::value* value = message.if_contains(name);
    if (value != nullptr && !value->is_null() && !value->is_string())
      return WrongType(absl::StrCat(path, ".", name), *value, "a string or null");
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
  if (auto problem = CheckReasoning(path, *message)) return problem;
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
FieldProblem ReadTool(const std::string& path, const json::value& value, CallableTool* callable) {
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
  const json::value* strict = fields.if_contains("strict");
  if (strict != nullptr && !strict->is_null() && !strict->is_bool())
    return WrongType(function_path + ".strict", *strict, "true or false");
  callable->name = TextOf(name->get_string());
  callable->parameters =
      parameters != nullptr && parameters->is_object() ? json::serialize(*parameters) : "";
  callable->strict = strict != nullptr && strict->is_bool() && strict->get_bool();
  return std::nullopt;
}

// The name in {"type":"function","function":{"name":...}}, which is the name of one of tools.
FieldProblem ReadToolName(const std::string& path, const json::value& value,
                          const ApiRequest& request, std::string* name) {
  const json::object* choice = value.if_object();
  if (choice == nullptr) return WrongType(path, value, "an object with type and function");
  const json::value* type = choice->if_contains("type");
  if (type == nullptr) return Missing(path + ".type");
  if (*type != "function") {
    return Unsupported(path + ".type", absl::StrCat("A tool_choice of type ", Shown(*type),
                                                    " is not supported by this server."));
  }
  const json::value* function = choice->if_contains("function");
  if (function == nullptr) return Missing(path + ".function");
  if (!function->is_object())
    return WrongType(path + ".function", *function, "an object with a name");
  const json::value* given = function->get_object().if_contains("name");
  const std::string name_path = path + ".function.name";
  if (given == nullptr) return Missing(name_path);
  if (auto problem = ReadText(name_path, *given, name)) return problem;
  const std::vector<CallableTool>& tools = request.callable_tools;
  if (std::any_of(tools.begin(), tools.end(),
                  [&](const CallableTool& tool) { return tool.name == *name; }))
    return std::nullopt;
  return WrongValue(name_path, *given, "the name of one of tools");
}

// Keeps the tools of these names. In calls that the request decides on, arguments follow their
// schemas.
void KeepCallable(const std::set<std::string>& names, ApiRequest* request) {
  std::erase_if(request->callable_tools,
                [&](const CallableTool& tool) { return !names.contains(tool.name); });
  for (CallableTool& tool : request->callable_tools) tool.strict = true;
}

// {"type":"allowed_tools","allowed_tools":{"mode":"auto" or "required","tools":[...]}}
FieldProblem ReadAllowedTools(const json::object& choice, ApiRequest* request) {
  const std::string path = "tool_choice.allowed_tools";
  const json::value* allowed = choice.if_contains("allowed_tools");
  if (allowed == nullptr) return Missing(path);
  if (!allowed->is_object()) return WrongType(path, *allowed, "an object with mode and tools");
  const json::value* mode = allowed->get_object().if_contains("mode");
  if (mode == nullptr) return Missing(path + ".mode");
  if (*mode != "auto" && *mode != "required")
    return WrongValue(path + ".mode", *mode, "auto or required");
  const json::value* tools = allowed->get_object().if_contains("tools");
  if (tools == nullptr) return Missing(path + ".tools");
  if (!tools->is_array() || tools->get_array().empty())
    return WrongType(path + ".tools", *tools, "a list of tools that is not empty");
  std::set<std::string> names;
  for (size_t i = 0; i < tools->get_array().size(); ++i) {
    std::string name;
    if (auto problem = ReadToolName(absl::StrCat(path, ".tools[", i, "]"), tools->get_array()[i],
                                    *request, &name))
      return problem;
    names.insert(std::move(name));
  }
  KeepCallable(names, request);
  if (*mode == "required") request->tool_choice = ToolChoice::kRequired;
  return std::nullopt;
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
  request->messages_in_parts = has_parts ? json::serialize(messages) : std::string();
  for (size_t i = 0; i < messages.size(); ++i)
    if (joined[i]) messages[i].get_object()["content"] = json::string(*joined[i]);
  request->messages = json::serialize(messages);
  return std::nullopt;
}

FieldProblem ParseTools(const std::string& path, const json::value& value, ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of tools");
  const json::array& tools = value.get_array();
  request->callable_tools.resize(tools.size());
  for (size_t i = 0; i < tools.size(); ++i) {
    if (auto problem =
            ReadTool(absl::StrCat(path, "[", i, "]"), tools[i], &request->callable_tools[i]))
      return problem;
  }
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

FieldProblem SetTemplateVariable(const std::string& name, const json::value& value,
                                 ApiRequest* request) {
  static constexpr const char* kPath = "chat_template_kwargs";
  json::object variables;
  if (!request->template_variables.empty()) {
    auto given = ParseJson(request->template_variables, kPath);
    if (!given.ok()) return InvalidField(kPath, std::string(given.status().message()));
    variables = std::move(given->get_object());
  }
  variables[name] = value;
  request->template_variables = json::serialize(variables);
  return std::nullopt;
}

FieldProblem CheckToolChoice(const json::object& fields, ApiRequest* request) {
  const json::value* choice = fields.if_contains("tool_choice");
  if (choice == nullptr || choice->is_null()) return std::nullopt;
  if (*choice == "none") {
    request->tools.clear();
    request->callable_tools.clear();
    return std::nullopt;
  }
  static constexpr const char* kWanted =
      "none, auto, required or {\"type\":\"function\",\"function\":{\"name\":...}}";
  const json::object* members = choice->if_object();
  if (members == nullptr && !choice->is_string()) return WrongType("tool_choice", *choice, kWanted);
  if (members == nullptr && *choice != "auto" && *choice != "required")
    return WrongValue("tool_choice", *choice, kWanted);
  if (request->tools.empty())
    return InvalidField("tool_choice", "tool_choice is given without tools; send tools too.");
  if (*choice == "required") request->tool_choice = ToolChoice::kRequired;
  if (members == nullptr) return std::nullopt;
  const json::value* type = members->if_contains("type");
  if (type != nullptr && *type == "allowed_tools") return ReadAllowedTools(*members, request);
  std::string name;
  if (auto problem = ReadToolName("tool_choice", *choice, *request, &name)) return problem;
  KeepCallable({name}, request);
  request->tool_choice = ToolChoice::kNamed;
  return std::nullopt;
}

}  // namespace baton
