#include "server/api/fields/response_tools.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/fields/message_parser.h"
#include "server/api/response_item.h"

namespace baton {
namespace {

namespace json = boost::json;

FieldProblem ReadNamed(const std::string& path, const json::object& members, const char* name,
                       std::string* out) {
  const std::string member_path = absl::StrCat(path, ".", name);
  const json::value* value = members.if_contains(name);
  if (value == nullptr) return Missing(member_path);
  if (auto problem = ReadText(member_path, *value, out)) return problem;
  if (!out->empty()) return std::nullopt;
  return InvalidField(member_path, member_path + " must not be empty.");
}

FieldProblem ReadFunction(const std::string& path, const json::object& tool,
                          json::object* function) {
  const json::value* parameters = tool.if_contains("parameters");
  if (parameters != nullptr && !parameters->is_null() && !parameters->is_object())
    return WrongType(path + ".parameters", *parameters, "an object");
  const json::value* strict = tool.if_contains("strict");
  if (strict != nullptr && !strict->is_null() && !strict->is_bool())
    return WrongType(path + ".strict", *strict, "true or false");
  for (const char* name : {"name", "description", "parameters", "strict"})
    if (const json::value* member = tool.if_contains(name)) (*function)[name] = *member;
  return std::nullopt;
}

// The schema of the one argument, of which *is_bound says whether a call is held to it.
FieldProblem ReadFormat(const std::string& path, const json::value* format, json::object* argument,
                        bool* is_bound) {
  *argument = {{"type", "string"}};
  *is_bound = false;
  if (format == nullptr || format->is_null()) return std::nullopt;
  if (!format->is_object()) return WrongType(path, *format, "an object with a type");
  const json::object& members = format->get_object();
  std::string type, syntax, definition;
  if (auto problem = ReadNamed(path, members, "type", &type)) return problem;
  if (type == "text") return std::nullopt;
  if (type != "grammar") return WrongValue(path + ".type", members.at("type"), "text or grammar");
  if (auto problem = ReadNamed(path, members, "syntax", &syntax)) return problem;
  if (auto problem = ReadNamed(path, members, "definition", &definition)) return problem;
  if (syntax != "regex") {
    return Unsupported(path + ".syntax",
                       absl::StrCat("Grammars in ", Shown(members.at("syntax")),
                                    " are not supported for the input of a tool; send regex."));
  }
  (*argument)["pattern"] = absl::StrCat("^(?:", definition, ")$");
  *is_bound = true;
  return std::nullopt;
}

FieldProblem ReadCustom(const std::string& path, const json::object& tool, json::object* function,
                        ApiRequest* request) {
  json::object argument;
  bool is_bound = false;
  if (auto problem = ReadFormat(path + ".format", tool.if_contains("format"), &argument, &is_bound))
    return problem;
  for (const char* name : {"name", "description"})
    if (const json::value* member = tool.if_contains(name)) (*function)[name] = *member;
  (*function)["parameters"] = json::object{{"type", "object"},
                                           {"properties", {{kCustomInput, std::move(argument)}}},
                                           {"required", json::array{kCustomInput}},
                                           {"additionalProperties", false}};
  (*function)["strict"] = is_bound;
  request->response.custom_tools.insert(TextOf(tool.at("name").get_string()));
  return std::nullopt;
}

// kinds: types of the tools before this one, by their names. A call has a name alone.
FieldProblem ReadTool(const std::string& path, const json::value& value,
                      std::map<std::string, std::string>* kinds, json::array* tools,
                      ApiRequest* request) {
  if (!value.is_object()) return WrongType(path, value, "an object with a type");
  const json::object& tool = value.get_object();
  std::string type, name;
  if (auto problem = ReadNamed(path, tool, "type", &type)) return problem;
  if (type != "function" && type != "custom") {
    return Unsupported(path + ".type",
                       absl::StrCat("Tools of type ", Shown(tool.at("type")),
                                    " are not supported; send function or custom."));
  }
  if (auto problem = ReadNamed(path, tool, "name", &name)) return problem;
  if (const auto [known, is_new] = kinds->emplace(name, type); !is_new && known->second != type)
    return WrongValue(path + ".name", tool.at("name"),
                      "another one than that of a " + known->second);
  const json::value* description = tool.if_contains("description");
  if (description != nullptr && !description->is_null() && !description->is_string())
    return WrongType(path + ".description", *description, "a string");
  json::object function;
  auto problem = type == "function" ? ReadFunction(path, tool, &function)
                                    : ReadCustom(path, tool, &function, request);
  if (problem) return problem;
  tools->push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  return std::nullopt;
}

// A tool by its name, {"type":"function","name":...}, as the chat spells it.
FieldProblem ReadToolName(const std::string& path, const json::value& value,
                          const ApiRequest& request, json::object* spelled) {
  if (!value.is_object()) return WrongType(path, value, "an object with type and name");
  const json::object& choice = value.get_object();
  std::string type, name;
  if (auto problem = ReadNamed(path, choice, "type", &type)) return problem;
  if (type != "function" && type != "custom") {
    return Unsupported(path + ".type",
                       absl::StrCat("A tool of type ", Shown(choice.at("type")),
                                    " is not supported here; send function or custom."));
  }
  if (auto problem = ReadNamed(path, choice, "name", &name)) return problem;
  const auto& tools = request.callable_tools;
  if (std::none_of(tools.begin(), tools.end(),
                   [&](const CallableTool& tool) { return tool.name == name; }))
    return WrongValue(path + ".name", choice.at("name"), "the name of one of tools");
  *spelled = json::object{{"type", "function"}, {"function", {{"name", name}}}};
  return std::nullopt;
}

FieldProblem ReadAllowed(const std::string& path, const json::object& choice,
                         const ApiRequest& request, json::object* spelled) {
  std::string mode;
  if (auto problem = ReadNamed(path, choice, "mode", &mode)) return problem;
  if (mode != "auto" && mode != "required")
    return WrongValue(path + ".mode", choice.at("mode"), "auto or required");
  const json::value* tools = choice.if_contains("tools");
  if (tools == nullptr) return Missing(path + ".tools");
  if (!tools->is_array() || tools->get_array().empty())
    return WrongType(path + ".tools", *tools, "a list of tools that is not empty");
  json::array names;
  for (size_t i = 0; i < tools->get_array().size(); ++i) {
    json::object name;
    if (auto problem = ReadToolName(absl::StrCat(path, ".tools[", i, "]"), tools->get_array()[i],
                                    request, &name))
      return problem;
    names.push_back(std::move(name));
  }
  *spelled = json::object{{"type", "allowed_tools"},
                          {"allowed_tools", {{"mode", mode}, {"tools", std::move(names)}}}};
  return std::nullopt;
}

}  // namespace

FieldProblem ReadResponseTools(const std::string& path, const json::value& value,
                               ApiRequest* request) {
  if (!value.is_array()) return WrongType(path, value, "a list of tools");
  json::array tools;
  std::map<std::string, std::string> kinds;
  for (size_t i = 0; i < value.get_array().size(); ++i) {
    if (auto problem = ReadTool(absl::StrCat(path, "[", i, "]"), value.get_array()[i], &kinds,
                                &tools, request))
      return problem;
  }
  request->response.tools = json::serialize(value);
  return ParseTools(path, tools, request);
}

FieldProblem ReadResponseToolChoice(const std::string& path, const json::value& value,
                                    ApiRequest* request) {
  static constexpr const char* kWanted = "none, auto, required, or an object with a type";
  json::object fields;
  if (value.is_string()) {
    if (value != "none" && value != "auto" && value != "required")
      return WrongValue(path, value, kWanted);
    fields["tool_choice"] = value;
    // Clients send it always.
    if (value == "auto" && request->tools.empty()) return std::nullopt;
  } else if (!value.is_object()) {
    return WrongType(path, value, kWanted);
  } else {
    json::object spelled;
    const json::value* type = value.get_object().if_contains("type");
    const bool is_list = type != nullptr && *type == "allowed_tools";
    auto problem = is_list ? ReadAllowed(path, value.get_object(), *request, &spelled)
                           : ReadToolName(path, value, *request, &spelled);
    if (problem) return problem;
    fields["tool_choice"] = std::move(spelled);
  }
  request->response.tool_choice = json::serialize(value);
  return CheckToolChoice(fields, request);
}

}  // namespace baton
