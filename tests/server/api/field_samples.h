// Bodies of requests from the table of fields: for each row the values that it takes and those that
// it refuses, at both ends of its bounds.
#pragma once

#include <boost/json.hpp>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/api/fields/field.h"
#include "server/api/json_document.h"

namespace baton::field_samples {

struct Place {
  Endpoint endpoint;
  const char* rest;  // of a body: what the endpoint needs, beside the field
};
inline constexpr Place kPlaces[] = {
    {Endpoint::kCompletions, R"("prompt":"a")"},
    {Endpoint::kChat, R"("messages":[{"role":"user","content":"a"}])"},
    {Endpoint::kTokenize, R"("prompt":"a")"},
    {Endpoint::kDetokenize, R"("tokens":[1])"},
    {Endpoint::kApplyTemplate, R"("messages":[{"role":"user","content":"a"}])"},
    {Endpoint::kMessages, R"("messages":[{"role":"user","content":"a"}])"},
    {Endpoint::kCountTokens, R"("messages":[{"role":"user","content":"a"}])"},
    {Endpoint::kResponses, R"("input":"a")"},
    {Endpoint::kStoredChat, R"("metadata":{})"},
};

// A body with the field; a field that the endpoint needs, or that stands for it, is alone.
inline std::string Body(const Place& place, const std::string& name, const std::string& value) {
  const bool is_input =
      std::string(place.rest).starts_with(absl::StrCat("\"", name, "\":")) ||
      (place.endpoint == Endpoint::kTokenize && (name == "messages" || name == "content"));
  const bool lacks_max = place.endpoint == Endpoint::kMessages && name != "max_tokens";
  return absl::StrCat("{", is_input ? "" : absl::StrCat(place.rest, ","),
                      lacks_max ? R"("max_tokens":1,)" : "", "\"", name, "\":", value, "}");
}

// The elements of a JSON array, each as JSON.
inline std::vector<std::string> Elements(const char* text) {
  const auto array = ParseJson(text);
  BATON_CHECK(array.ok());
  std::vector<std::string> elements;
  for (const boost::json::value& value : array->get_array())
    elements.push_back(boost::json::serialize(value));
  return elements;
}

// Values of a rule that are taken and that are refused, as JSON.
struct Samples {
  std::vector<std::string> good, bad;

  void operator()(const BoolRule&) {
    good = {"true", "false"};
    bad = {"1", "\"true\"", "[]", "{}"};
  }
  void operator()(const IntRule& rule) {
    good = {absl::StrCat(rule.min), absl::StrCat(rule.max)};
    bad = {"\"1\"", "true", "[]", "{}", "0.5", "1e300"};
    if (rule.min > std::numeric_limits<int64_t>::min()) bad.push_back(absl::StrCat(rule.min - 1));
    if (rule.max < std::numeric_limits<int64_t>::max()) bad.push_back(absl::StrCat(rule.max + 1));
  }
  void operator()(const NumberRule& rule) {
    const double inside = rule.above_min ? 1e-300 : rule.limit.min;
    good = {absl::StrCat(inside), absl::StrCat(rule.limit.max)};
    bad = {"\"1\"",
           "true",
           "[]",
           "{}",
           absl::StrCat(rule.limit.min - 0.01),
           absl::StrCat(rule.limit.max + 0.01)};
    if (rule.above_min) bad.push_back(absl::StrCat(rule.limit.min));
  }
  void operator()(const TextRule&) {
    good = {"\"a\"", "\"\""};
    bad = {"1", "true", "[]", "{}"};
  }
  void operator()(const OwnRule& rule) {
    good = Elements(rule.good);
    bad = Elements(rule.bad);
    BATON_CHECK(!good.empty() && !bad.empty());
  }
  void operator()(const RefusedRule& rule) {
    for (const std::string_view value : rule.neutral) good.emplace_back(value);
    bad = {"[[\"x\"]]", "{\"x\":{\"y\":1}}", "\"something else\"", "12.25"};
  }
  void operator()(const NoEffectRule&) { good = {"1", "true", "\"a\"", "[[]]", "{\"x\":null}"}; }
};

}  // namespace baton::field_samples
