// A validator for the part of JSON Schema that the tests' random schemas use, written from the
// standard and not from the grammars.
#pragma once

#include <boost/json.hpp>
#include <cmath>
#include <regex>
#include <string>
#include <string_view>

namespace baton::json_schema {

namespace json = boost::json;

inline size_t Characters(std::string_view text) {
  size_t n = 0;
  for (const char byte : text) n += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return n;
}

inline double Number(const json::value& value) { return value.to_number<double>(); }

inline bool IsType(const json::value& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return type == "integer" && value.is_number() && Number(value) == std::floor(Number(value));
}

class Validator {
 public:
  explicit Validator(json::value root) : root_(std::move(root)) {}

  bool Valid(const json::value& value) const { return Valid(root_, value); }

 private:
  bool Valid(const json::value& schema, const json::value& value) const {
    if (schema.is_bool()) return schema.as_bool();
    for (const auto& [key, rule] : schema.as_object())
      if (!Holds(schema.as_object(), std::string_view(key), rule, value)) return false;
    return true;
  }

  bool Holds(const json::object& schema, std::string_view key, const json::value& rule,
             const json::value& value) const {
    if (key == "type") {
      if (rule.is_string()) return IsType(value, std::string_view(rule.as_string()));
      for (const json::value& type : rule.as_array())
        if (IsType(value, std::string_view(type.as_string()))) return true;
      return false;
    }
    if (key == "$ref") {
      // "#/$defs/NAME" is all that the schemas use.
      const std::string_view name = std::string_view(rule.as_string()).substr(8);
      const json::string_view key_of_root(name.data(), name.size());
      return Valid(root_.as_object().at("$defs").as_object().at(key_of_root), value);
    }
    if (key == "const") return rule == value;
    if (key == "enum" || key == "anyOf" || key == "oneOf" || key == "allOf") {
      size_t n = 0;
      for (const json::value& option : rule.as_array())
        n += key == "enum" ? option == value : Valid(option, value);
      if (key == "oneOf") return n == 1;
      return key == "allOf" ? n == rule.as_array().size() : n > 0;
    }
    if (value.is_string()) {
      const std::string text(std::string_view(value.as_string()));
      if (key == "minLength") return static_cast<double>(Characters(text)) >= Number(rule);
      if (key == "maxLength") return static_cast<double>(Characters(text)) <= Number(rule);
      if (key == "pattern")
        return std::regex_search(text, std::regex(std::string(std::string_view(rule.as_string()))));
    }
    if (value.is_number()) {
      if (key == "minimum") return Number(value) >= Number(rule);
      if (key == "maximum") return Number(value) <= Number(rule);
      if (key == "exclusiveMinimum") return Number(value) > Number(rule);
      if (key == "exclusiveMaximum") return Number(value) < Number(rule);
      if (key == "multipleOf") {
        const double times = Number(value) / Number(rule);
        return std::abs(times - std::round(times)) < 1e-9 * std::max(1.0, std::abs(times));
      }
    }
    if (value.is_array()) return HoldsForArray(schema, key, rule, value.as_array());
    if (value.is_object()) return HoldsForObject(schema, key, rule, value.as_object());
    return true;
  }

  bool HoldsForArray(const json::object& schema, std::string_view key, const json::value& rule,
                     const json::array& items) const {
    if (key == "minItems") return static_cast<double>(items.size()) >= Number(rule);
    if (key == "maxItems") return static_cast<double>(items.size()) <= Number(rule);
    const json::value* prefix = schema.if_contains("prefixItems");
    const size_t n_prefix = prefix == nullptr ? 0 : prefix->as_array().size();
    for (size_t i = 0; i < items.size(); ++i) {
      if (key == "prefixItems" && i < n_prefix && !Valid(rule.as_array()[i], items[i]))
        return false;
      if (key == "items" && i >= n_prefix && !Valid(rule, items[i])) return false;
    }
    return true;
  }

  bool HoldsForObject(const json::object& schema, std::string_view key, const json::value& rule,
                      const json::object& object) const {
    if (key == "required") {
      for (const json::value& name : rule.as_array())
        if (!object.contains(name.as_string())) return false;
    }
    const json::value* properties = schema.if_contains("properties");
    for (const auto& [name, value] : object) {
      const json::value* own =
          properties == nullptr ? nullptr : properties->as_object().if_contains(name);
      if (key == "properties" && own != nullptr && !Valid(*own, value)) return false;
      if (key == "additionalProperties" && own == nullptr && !Valid(rule, value)) return false;
    }
    return true;
  }

  json::value root_;
};

}  // namespace baton::json_schema
