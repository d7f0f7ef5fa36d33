#include "server/api/fields/field_schema.h"

#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/api/json_document.h"

namespace baton {
namespace {

namespace json = boost::json;

std::string NumberText(double number) { return absl::StrCat(number); }

// Schemas of values other than null.
struct ValueSchema {
  std::string operator()(const BoolRule&) const { return R"({"type":"boolean"})"; }
  std::string operator()(const IntRule& rule) const {
    return absl::StrCat(R"({"type":"integer","minimum":)", rule.min, R"(,"maximum":)", rule.max,
                        "}");
  }
  std::string operator()(const NumberRule& rule) const {
    return absl::StrCat(
        R"({"type":"number",)", rule.above_min ? R"("exclusiveMinimum":)" : R"("minimum":)",
        NumberText(rule.limit.min), R"(,"maximum":)", NumberText(rule.limit.max), "}");
  }
  std::string operator()(const TextRule&) const { return R"({"type":"string"})"; }
  std::string operator()(const OwnRule& rule) const { return rule.schema; }
  std::string operator()(const RefusedRule& rule) const {
    if (rule.neutral.empty()) return R"({"not":{}})";
    std::string values;
    for (const std::string_view value : rule.neutral)
      absl::StrAppend(&values, values.empty() ? "" : ",", std::string(value));
    return absl::StrCat(R"({"enum":[)", values, "]}");
  }
  std::string operator()(const NoEffectRule&) const { return "{}"; }
};

std::string HelpOf(const Field& field) {
  if (const auto* refused = std::get_if<RefusedRule>(&field.rule))
    return absl::StrCat("Refused: ", refused->why, ".");
  const bool has_no_effect = std::holds_alternative<NoEffectRule>(field.rule);
  std::string help = absl::StrCat(has_no_effect ? "Has no effect. " : "", field.help, ".");
  if (field.preset[0] != '\0') absl::StrAppend(&help, " Default: ", field.preset, ".");
  return help;
}

// "object or string".
std::string TypesOf(const json::object& schema) {
  const json::value* type = schema.if_contains("type");
  if (type == nullptr) return "any value";
  if (type->is_string()) return TextOf(type->get_string());
  std::vector<std::string> words;
  for (const json::value& one : type->get_array()) words.push_back(TextOf(one.get_string()));
  return absl::StrJoin(words, " or ");
}

// "integer from 1 to 8", of a schema that is an object.
std::string WordsOf(const json::object& schema) {
  const auto text = [&](const char* key) -> std::string {
    const json::value* value = schema.if_contains(key);
    if (value == nullptr) return "";
    return value->is_double() ? NumberText(value->get_double()) : json::serialize(*value);
  };
  if (const json::value* options = schema.if_contains("anyOf")) {
    std::vector<std::string> words;
    for (const json::value& option : options->get_array())
      words.push_back(WordsOf(option.get_object()));
    return absl::StrJoin(words, ", or ");
  }
  if (const json::value* values = schema.if_contains("enum")) {
    std::vector<std::string> words;
    for (const json::value& value : values->get_array()) words.push_back(json::serialize(value));
    return absl::StrJoin(words, ", ");
  }
  if (schema.contains("const")) return text("const");
  if (const json::value* reference = schema.if_contains("$ref")) {
    const std::string path = TextOf(reference->get_string());
    return path.substr(path.rfind('/') + 1);
  }
  std::string words = TypesOf(schema);
  if (const json::value* items = schema.if_contains("items"))
    absl::StrAppend(&words, " of (", WordsOf(items->get_object()), ")");
  const json::value* values = schema.if_contains("additionalProperties");
  if (values != nullptr && values->is_object())
    absl::StrAppend(&words, " of (", WordsOf(values->get_object()), ")");
  const std::string min = text("minimum"), max = text("maximum");
  const std::string above = text("exclusiveMinimum");
  if (!min.empty()) absl::StrAppend(&words, " from ", min);
  if (!above.empty()) absl::StrAppend(&words, " above ", above);
  if (!max.empty()) absl::StrAppend(&words, above.empty() && min.empty() ? " up to " : " to ", max);
  return words;
}

}  // namespace

void WriteRequestSchema(JsonWriter& json, Endpoint endpoint) {
  json.Object([&] {
    json.Field("type", "object");
    json.Object("properties", [&] {
      for (const Field& field : AllFields()) {
        if ((field.endpoints & SetOf(endpoint)) == 0) continue;
        json.Object(field.name, [&] {
          json.Array("anyOf", [&] {
            json.Json(std::visit(ValueSchema(), field.rule));
            json.Json(R"({"type":"null"})");
          });
          json.Field("description", HelpOf(field));
        });
      }
    });
    switch (endpoint) {
      case Endpoint::kCompletions:
        json.JsonField("required", R"(["prompt"])");
        break;
      case Endpoint::kResponses:
        json.JsonField("anyOf",
                       R"([{"required":["input"]},{"required":["previous_response_id"]}])");
        break;
      case Endpoint::kStoredChat:
        json.JsonField("required", R"(["metadata"])");
        break;
      case Endpoint::kDetokenize:
        json.JsonField("required", R"(["tokens"])");
        break;
      case Endpoint::kMessages:
        json.JsonField("required", R"(["messages","max_tokens"])");
        break;
      case Endpoint::kChat:
      case Endpoint::kCountTokens:
      case Endpoint::kApplyTemplate:
        json.JsonField("required", R"(["messages"])");
        break;
      case Endpoint::kTokenize:
        json.JsonField("oneOf", R"([{"required":["prompt"]},{"required":["messages"]},)"
                                R"({"required":["content"]}])");
    }
  });
}

std::string TypeWords(const FieldRule& rule) {
  const auto schema = ParseJson(std::visit(ValueSchema(), rule));
  return schema.ok() && schema->is_object() ? WordsOf(schema->get_object()) : "";
}

}  // namespace baton
