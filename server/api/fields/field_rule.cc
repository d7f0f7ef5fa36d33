#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/fields/field.h"

namespace baton {
namespace {

namespace json = boost::json;

// JSON text of a value, equal for equal numbers however they are written: 1, 1.0, 1e0.
std::string Plain(const json::value& value) {
  return value.is_number() ? absl::StrCat(value.to_number<double>()) : json::serialize(value);
}

struct Applying {
  const std::string& path;
  const json::value& value;
  const RequestSettings& settings;
  ApiRequest* request;

  FieldProblem operator()(const BoolRule& rule) const {
    bool given = false;
    auto problem = ReadBool(path, value, &given);
    if (!problem) std::visit([&](auto field) { request->*field = given; }, rule.field);
    return problem;
  }
  FieldProblem operator()(const IntRule& rule) const {
    int64_t given = 0;
    auto problem = ReadInt(path, value, rule.min, rule.max, &given);
    if (!problem) std::visit([&](auto field) { request->*field = given; }, rule.field);
    return problem;
  }
  FieldProblem operator()(const NumberRule& rule) const {
    double given = 0;
    auto problem = ReadNumber(path, value, rule.limit, rule.above_min, &given);
    if (!problem) request->*rule.field = given;
    return problem;
  }
  FieldProblem operator()(const TextRule& rule) const {
    return ReadText(path, value, &(request->*rule.field));
  }
  FieldProblem operator()(const OwnRule& rule) const {
    return rule.parse(path, value, settings, request);
  }
  FieldProblem operator()(const RefusedRule& rule) const {
    const std::string given = Plain(value);
    if (std::find(rule.neutral.begin(), rule.neutral.end(), given) != rule.neutral.end())
      return std::nullopt;
    return Unsupported(path, absl::StrCat(path, " is not supported by this server: ", rule.why,
                                          "; leave it out (got ", Shown(value), ")."));
  }
  FieldProblem operator()(const NoEffectRule&) const { return std::nullopt; }
};

}  // namespace

FieldProblem ApplyRule(const FieldRule& rule, const std::string& path, const json::value& value,
                       const RequestSettings& settings, ApiRequest* request) {
  return std::visit(Applying{path, value, settings, request}, rule);
}

const std::vector<Field>& AllFields() {
  static const std::vector<Field> kFields = [] {
    std::vector<Field> all;
    for (const auto rows : {PromptFields(), SamplingFields(), AnswerFields(), ConstraintFields(),
                            OtherFields(), AnthropicFields(), ResponsesFields()})
      all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }();
  return kFields;
}

}  // namespace baton
