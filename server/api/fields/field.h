// A row of the table of request fields: its name, endpoints, rule, default and purpose. The one
// table drives parsing (request_parser.cc), /openapi.json (field_schema.h), docs/API.md
// (field_reference.h) and the test that mutates every field.
//
// A field is honoured (it has an effect), has no effect (and says so), or is refused: a server that
// clients know shapes its output by it, so that ignoring it would give a wrong answer with status
// 200. Names that no row has are ignored. null stands for an absent field everywhere.
// Plain data: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api/api_request.h"
#include "server/api/fields/field_value.h"

namespace baton {

// Endpoints as bits.
using EndpointSet = uint32_t;
constexpr EndpointSet SetOf(Endpoint endpoint) { return 1u << static_cast<unsigned>(endpoint); }
inline constexpr EndpointSet kAtCompletions = SetOf(Endpoint::kCompletions);
inline constexpr EndpointSet kAtChat = SetOf(Endpoint::kChat);
inline constexpr EndpointSet kAtGeneration = kAtCompletions | kAtChat;
inline constexpr EndpointSet kAtTokenize = SetOf(Endpoint::kTokenize);
inline constexpr EndpointSet kAtDetokenize = SetOf(Endpoint::kDetokenize);
inline constexpr EndpointSet kAtApplyTemplate = SetOf(Endpoint::kApplyTemplate);
inline constexpr EndpointSet kAtAnthropic = SetOf(Endpoint::kMessages);
inline constexpr EndpointSet kAtConversation = kAtAnthropic | SetOf(Endpoint::kCountTokens);
inline constexpr EndpointSet kAtResponses = SetOf(Endpoint::kResponses);
inline constexpr EndpointSet kAtStoredChat = SetOf(Endpoint::kStoredChat);
inline constexpr EndpointSet kAtOpenAi = kAtGeneration | kAtResponses;
// The endpoints where messages become a prompt.
inline constexpr EndpointSet kAtMessages = kAtChat | kAtTokenize | kAtApplyTemplate;

struct BoolRule {
  std::variant<bool ApiRequest::*, std::optional<bool> ApiRequest::*> field;
};
struct IntRule {
  std::variant<int64_t ApiRequest::*, std::optional<int64_t> ApiRequest::*> field;
  int64_t min, max;
};
struct NumberRule {
  std::optional<double> ApiRequest::*field;
  FieldLimit limit;
  bool above_min = false;  // the min itself is not allowed
};
struct TextRule {
  std::string ApiRequest::*field;
};
// A form of its own.
struct OwnRule {
  FieldProblem (*parse)(const std::string& path, const boost::json::value& value,
                        const RequestSettings& settings, ApiRequest* request);
  const char* schema;  // JSON Schema of a value
  // JSON arrays of values that are taken, and that are refused, at both ends of each bound.
  const char* good;
  const char* bad;
};
using FieldReader = FieldProblem (*)(const std::string& path, const boost::json::value& value,
                                     ApiRequest* request);
// OwnRule::parse of a reader that no setting concerns.
template <FieldReader kRead>
FieldProblem Parse(const std::string& path, const boost::json::value& value, const RequestSettings&,
                   ApiRequest* request) {
  return kRead(path, value, request);
}
// Only null and the neutral values (as JSON, without spaces) pass: with them the field changes
// nothing.
struct RefusedRule {
  const char* why;
  std::vector<std::string_view> neutral;
};
struct NoEffectRule {};

using FieldRule =
    std::variant<BoolRule, IntRule, NumberRule, TextRule, OwnRule, RefusedRule, NoEffectRule>;

struct Field {
  const char* name;
  EndpointSet endpoints;
  FieldRule rule;
  const char* preset;  // of an absent field; empty: stated in `help`, or nothing
  const char* help;    // a sentence without its full stop; empty: the rule says all
};

// The rows of a subject. Their order matters where two rows set one member: the later one wins.
std::span<const Field> PromptFields();      // prompts, messages, tools, templates
std::span<const Field> SamplingFields();    // the choice of tokens, and when it ends
std::span<const Field> AnswerFields();      // the form of the answer
std::span<const Field> ConstraintFields();  // structured output
std::span<const Field> OtherFields();       // of other servers: refused, or without effect
std::span<const Field> AnthropicFields();   // all rows of Anthropic's API
std::span<const Field> ResponsesFields();   // rows of /v1/responses alone

// All of the above, in this order.
const std::vector<Field>& AllFields();

// Applies a rule to a value that is not null.
FieldProblem ApplyRule(const FieldRule& rule, const std::string& path,
                       const boost::json::value& value, const RequestSettings& settings,
                       ApiRequest* request);

}  // namespace baton
