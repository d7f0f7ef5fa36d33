// Rows of structured output, under the names of all servers that know it. A request has at most one
// grammar; whether its text is one is found out by the compiler (text/grammar.h).
#include <algorithm>
#include <boost/json.hpp>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

// path: of the field or of a member of it, which errors of the compiler name.
FieldProblem SetGrammar(const std::string& path, GrammarKind kind, std::string text,
                        ApiRequest* request) {
  if (request->grammar.kind != GrammarKind::kNone) {
    return InvalidField(path, absl::StrCat(path, " and ", request->grammar_path,
                                           " both constrain the answer; send one of them."));
  }
  if (text.size() > kMaxGrammarBytes) {
    return TooMany(path, static_cast<int64_t>(kMaxGrammarBytes), "bytes", text.size());
  }
  request->grammar = {kind, std::move(text)};
  request->grammar_path = path;
  return std::nullopt;
}

// A schema as JSON, or as a string that is JSON.
FieldProblem ReadSchema(const std::string& path, const json::value& value, ApiRequest* request) {
  if (const json::string* text = value.if_string()) {
    const auto parsed = ParseJson(std::string_view(text->data(), text->size()));
    if (!parsed.ok())
      return InvalidField(path, absl::StrCat(path, ": ", std::string(parsed.status().message())));
    if (!parsed->is_object() && !parsed->is_bool()) return WrongType(path, value, "a JSON schema");
    return SetGrammar(path, GrammarKind::kJsonSchema, TextOf(*text), request);
  }
  if (!value.is_object() && !value.is_bool()) return WrongType(path, value, "a JSON schema");
  return SetGrammar(path, GrammarKind::kJsonSchema, json::serialize(value), request);
}

FieldProblem ReadChoice(const std::string& path, const json::value& value, ApiRequest* request) {
  const json::array* list = value.if_array();
  if (list == nullptr) return WrongType(path, value, "a list of strings");
  for (size_t i = 0; i < list->size(); ++i)
    if (!(*list)[i].is_string())
      return WrongType(absl::StrCat(path, "[", i, "]"), (*list)[i], "a string");
  return SetGrammar(path, GrammarKind::kChoice, json::serialize(*list), request);
}

template <GrammarKind kKind>
FieldProblem ReadGrammarText(const std::string& path, const json::value& value,
                             ApiRequest* request) {
  if (!value.is_string()) return WrongType(path, value, "a string");
  if (value.get_string().empty()) return InvalidField(path, path + " must not be empty.");
  return SetGrammar(path, kKind, TextOf(value.get_string()), request);
}

// false asks for nothing.
FieldProblem ReadAnyObject(const std::string& path, const json::value& value, ApiRequest* request) {
  bool wanted = false;
  if (auto problem = ReadBool(path, value, &wanted)) return problem;
  if (!wanted) return std::nullopt;
  return SetGrammar(path, GrammarKind::kJsonObject, "", request);
}

// As SGLang and llama.cpp: the empty value asks for nothing.
template <FieldReader kRead>
FieldProblem ParseUnlessEmpty(const std::string& path, const json::value& value,
                              const RequestSettings&, ApiRequest* request) {
  const bool is_empty = (value.is_string() && value.get_string().empty()) ||
                        (value.is_object() && value.get_object().empty());
  return is_empty ? std::nullopt : kRead(path, value, request);
}

FieldProblem ReadJsonSchemaFormat(const std::string& path, const json::value* format,
                                  ApiRequest* request) {
  if (format == nullptr) return Missing(path);
  const json::object* members = format->if_object();
  if (members == nullptr) return WrongType(path, *format, "an object with name and schema");
  const std::string schema_path = path + ".schema";
  const json::value* schema = members->if_contains("schema");
  if (schema == nullptr || schema->is_null()) return Missing(schema_path);
  if (!schema->is_object()) return WrongType(schema_path, *schema, "a JSON schema");
  return ReadSchema(schema_path, *schema, request);
}

FieldProblem ParseResponseFormat(const std::string& path, const json::value& value,
                                 const RequestSettings&, ApiRequest* request) {
  static constexpr const char* kWanted = "text, json_object or json_schema";
  const json::object* members = value.if_object();
  if (members == nullptr) return WrongType(path, value, "an object with a type");
  const std::string type_path = path + ".type";
  const json::value* type = members->if_contains("type");
  if (type == nullptr || !type->is_string())
    return WrongType(type_path, type == nullptr ? json::value() : *type, kWanted);
  if (*type == "text") return std::nullopt;
  if (*type == "json_object") return SetGrammar(path, GrammarKind::kJsonObject, "", request);
  if (*type != "json_schema") return WrongValue(type_path, *type, kWanted);
  return ReadJsonSchemaFormat(path + ".json_schema", members->if_contains("json_schema"), request);
}

// text of /v1/responses: what response_format is to the chat, with its members not in a list of
// their own; and verbosity, which the answer repeats.
FieldProblem ReadTextForm(const std::string& path, const json::value& value, ApiRequest* request) {
  static constexpr const char* kWanted = "text, json_object or json_schema";
  const json::object* members = value.if_object();
  if (members == nullptr) return WrongType(path, value, "an object with a format");
  if (const json::value* verbosity = members->if_contains("verbosity")) {
    if (!verbosity->is_null() && *verbosity != "low" && *verbosity != "medium" &&
        *verbosity != "high")
      return WrongValue(path + ".verbosity", *verbosity, "low, medium or high");
    if (!verbosity->is_null()) request->response.verbosity = json::serialize(*verbosity);
  }
  const json::value* format = members->if_contains("format");
  if (format == nullptr || format->is_null()) return std::nullopt;
  const std::string format_path = path + ".format";
  if (!format->is_object()) return WrongType(format_path, *format, "an object with a type");
  request->response.text_format = json::serialize(*format);
  const json::value* type = format->get_object().if_contains("type");
  if (type == nullptr || !type->is_string())
    return WrongType(format_path + ".type", type == nullptr ? json::value() : *type, kWanted);
  if (*type == "text") return std::nullopt;
  if (*type == "json_object") return SetGrammar(format_path, GrammarKind::kJsonObject, "", request);
  if (*type != "json_schema") return WrongValue(format_path + ".type", *type, kWanted);
  return ReadJsonSchemaFormat(format_path, format, request);
}

FieldProblem ParseStructuredOutputs(const std::string& path, const json::value& value,
                                    const RequestSettings&, ApiRequest* request) {
  static constexpr struct {
    const char* name;
    FieldReader read;
  } kMembers[] = {{"json", ReadSchema},
                  {"regex", ReadGrammarText<GrammarKind::kRegex>},
                  {"choice", ReadChoice},
                  {"grammar", ReadGrammarText<GrammarKind::kLark>},
                  {"json_object", ReadAnyObject}};
  const json::object* members = value.if_object();
  if (members == nullptr) return WrongType(path, value, "an object");
  for (const auto& member : *members) {
    if (member.value().is_null()) continue;
    const std::string member_path =
        absl::StrCat(path, ".", std::string(member.key().data(), member.key().size()));
    const auto known = std::find_if(std::begin(kMembers), std::end(kMembers),
                                    [&](const auto& k) { return member.key() == k.name; });
    if (known == std::end(kMembers)) {
      return Unsupported(member_path, absl::StrCat(member_path,
                                                   " is not supported by this server; send one of "
                                                   "json, regex, choice, grammar, json_object."));
    }
    if (auto problem = known->read(member_path, member.value(), request)) return problem;
  }
  if (request->grammar.kind != GrammarKind::kNone) return std::nullopt;
  return InvalidField(path, path + " must have one of json, regex, choice, grammar, json_object.");
}

constexpr char kFormatSchema[] =
    R"({"type":"object","required":["type"],"properties":{"type":{"type":"string",)"
    R"("enum":["text","json_object","json_schema"]},"json_schema":{"type":"object",)"
    R"("required":["schema"],"properties":{"name":{"type":"string"},)"
    R"("schema":{"type":"object"},"strict":{"type":["boolean","null"]}}}}})";
constexpr char kTextFormSchema[] =
    R"({"type":"object","properties":{"format":{"type":"object","required":["type"]},)"
    R"("verbosity":{"enum":["low","medium","high",null]}}})";
constexpr char kOutputsSchema[] =
    R"({"type":"object","maxProperties":1,"additionalProperties":false,"properties":{)"
    R"("json":{"type":["object","boolean","string"]},"regex":{"type":"string","minLength":1},)"
    R"("choice":{"type":"array","items":{"type":"string"}},)"
    R"("grammar":{"type":"string","minLength":1},"json_object":{"const":true}}})";
constexpr char kJsonSchema[] = R"({"type":["object","boolean","string"]})";
constexpr char kTextSchema[] = R"({"type":"string","minLength":1})";
constexpr char kPerhapsTextSchema[] = R"({"type":"string"})";
constexpr char kChoiceSchema[] = R"({"type":"array","items":{"type":"string"}})";
constexpr char kBoolSchema[] = R"({"type":"boolean"})";

constexpr char kGoodSchemas[] = R"([{"type":"integer"},true,"{\"type\":\"integer\"}"])";
constexpr char kBadSchemas[] = R"([7,[],"{a","7"])";

}  // namespace

std::span<const Field> ConstraintFields() {
  static const std::vector<Field> kRows = {
      {"response_format", kAtGeneration,
       OwnRule{ParseResponseFormat, kFormatSchema,
               R"([{"type":"text"},{"type":"json_object"},)"
               R"({"type":"json_schema","json_schema":{"name":"a","schema":{}}}])",
               R"(["json",{},{"type":7},{"type":"xml"},{"type":"json_schema"},)"
               R"({"type":"json_schema","json_schema":{"schema":7}}])"},
       "text", "The answer is any text, a JSON object, or JSON of a schema, by construction"},
      {"text", kAtResponses,
       OwnRule{Parse<ReadTextForm>, kTextFormSchema,
               R"([{},{"format":{"type":"text"},"verbosity":"low"},)"
               R"({"format":{"type":"json_object"}},)"
               R"({"format":{"type":"json_schema","name":"a","schema":{}}}])",
               R"(["json",{"format":7},{"format":{}},{"format":{"type":"xml"}},)"
               R"({"format":{"type":"json_schema","name":"a"}},{"verbosity":"much"}])"},
       "text",
       "format: the answer is any text, a JSON object, or JSON of a schema, by construction; "
       "verbosity has no effect"},
      {"structured_outputs", kAtOpenAi,
       OwnRule{ParseStructuredOutputs, kOutputsSchema,
               R"([{"json":{}},{"regex":"a+"},{"choice":["a"]},{"grammar":"start: \"a\""},)"
               R"({"json_object":true}])",
               R"([7,{},{"regex":7},{"regex":""},{"choice":[7]},{"structural_tag":{}},)"
               R"({"json":{},"regex":"a"}])"},
       "",
       "The answer is JSON of a schema, a match of a regex, a choice, or a text of a Lark grammar"},
      {"guided_json", kAtOpenAi, OwnRule{Parse<ReadSchema>, kJsonSchema, kGoodSchemas, kBadSchemas},
       "", "structured_outputs.json by its older name"},
      {"guided_regex", kAtOpenAi,
       OwnRule{Parse<ReadGrammarText<GrammarKind::kRegex>>, kTextSchema, R"(["a+"])", R"([7,""])"},
       "", "structured_outputs.regex by its older name"},
      {"guided_choice", kAtOpenAi,
       OwnRule{Parse<ReadChoice>, kChoiceSchema, R"([["a","b"]])", R"([7,[7]])"}, "",
       "structured_outputs.choice by its older name"},
      {"guided_grammar", kAtOpenAi,
       OwnRule{Parse<ReadGrammarText<GrammarKind::kLark>>, kTextSchema, R"(["start: \"a\""])",
               R"([7,""])"},
       "", "structured_outputs.grammar by its older name"},
      {"guided_json_object", kAtOpenAi,
       OwnRule{Parse<ReadAnyObject>, kBoolSchema, "[true,false]", R"([7,"a"])"}, "",
       "structured_outputs.json_object by its older name"},
      {"json_schema", kAtOpenAi,
       OwnRule{ParseUnlessEmpty<ReadSchema>, kJsonSchema, R"([{"type":"integer"},"",{}])",
               R"([7,[],"{a"])"},
       "", "structured_outputs.json as SGLang and llama.cpp spell it; {} and the empty text: none"},
      {"regex", kAtOpenAi,
       OwnRule{ParseUnlessEmpty<ReadGrammarText<GrammarKind::kRegex>>, kPerhapsTextSchema,
               R"(["a+",""])", "[7]"},
       "", "structured_outputs.regex as SGLang spells it; the empty text: none"},
      {"grammar", kAtOpenAi,
       OwnRule{ParseUnlessEmpty<ReadGrammarText<GrammarKind::kLark>>, kPerhapsTextSchema,
               R"(["start: \"a\"",""])", "[7]"},
       "", "structured_outputs.grammar, so Lark; GBNF is refused by name; the empty text: none"},
      {"ebnf", kAtOpenAi, RefusedRule{"send a Lark grammar in structured_outputs", {"\"\""}}, "",
       ""},
      {"structural_tag", kAtOpenAi, RefusedRule{"parts of an answer cannot be constrained", {}}, "",
       ""},
      {"guided_decoding_backend", kAtOpenAi, RefusedRule{"there is one grammar engine", {}}, "",
       ""},
      {"guided_whitespace_pattern", kAtOpenAi,
       RefusedRule{"whitespace between tokens of JSON is free", {}}, "", ""},
      {"grammar_lazy", kAtOpenAi, RefusedRule{"a grammar holds from the first token on", {"false"}},
       "", ""},
      {"grammar_triggers", kAtOpenAi,
       RefusedRule{"a grammar holds from the first token on", {"[]"}}, "", ""},
  };
  return kRows;
}

}  // namespace baton
