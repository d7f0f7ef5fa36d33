// Every row of the table of fields, by its own bounds: what is good is taken, and each mutation of
// it is a 400 that names the field.
#include "server/api/fields/field.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>

#include "server/api/json_document.h"
#include "tests/server/api/field_samples.h"

namespace baton {
namespace {

using field_samples::Body;
using field_samples::kPlaces;
using field_samples::Place;
using field_samples::Samples;

TEST_CASE("each field takes its good values and null, and refuses each of its bad ones by name") {
  int n_bodies = 0;
  for (const Field& field : AllFields()) {
    for (const Place& place : kPlaces) {
      if ((field.endpoints & SetOf(place.endpoint)) == 0) continue;
      Samples samples;
      std::visit(samples, field.rule);
      const std::string name = field.name;
      const bool is_input = Body(place, name, "1").find(place.rest) == std::string::npos;
      const bool is_needed = name == "max_tokens" && place.endpoint == Endpoint::kMessages;
      if (!is_input && !is_needed) samples.good.emplace_back("null");
      for (const std::string& value : samples.good) {
        const std::string body = Body(place, name, value);
        ApiRequest request;
        const auto error = ParseApiRequest(place.endpoint, body, &request);
        INFO(body);
        INFO((error ? error->message : ""));
        CHECK_FALSE(error);
        ++n_bodies;
      }
      for (const std::string& value : samples.bad) {
        const std::string body = Body(place, name, value);
        ApiRequest request;
        const auto error = ParseApiRequest(place.endpoint, body, &request);
        INFO(body);
        REQUIRE(error);
        CHECK(error->status == 400);
        CHECK(error->param.substr(0, name.size()) == name);
        CHECK(error->message.size() > 10);
        CHECK(error->message.size() < 400);
        ++n_bodies;
      }
    }
  }
  CHECK(n_bodies > 800);
}

// Nothing that a client asks for is dropped in silence because it asked at another endpoint.
TEST_CASE("a field that other endpoints take is refused by name, unless it changes nothing") {
  const std::set<Endpoint> generating = {Endpoint::kCompletions, Endpoint::kChat,
                                         Endpoint::kMessages, Endpoint::kResponses};
  int n_refused = 0;
  for (const Place& place : kPlaces) {
    if (!generating.contains(place.endpoint)) continue;
    std::set<std::string> own;
    for (const Field& field : AllFields())
      if ((field.endpoints & SetOf(place.endpoint)) != 0) own.insert(field.name);
    for (const Field& field : AllFields()) {
      const bool is_known = own.contains(field.name) ||
                            std::holds_alternative<NoEffectRule>(field.rule) ||
                            (field.endpoints & (kAtOpenAi | kAtAnthropic)) == 0;
      if (is_known) continue;
      ApiRequest request;
      INFO(Body(place, field.name, "12.25"));
      CHECK_FALSE(ParseApiRequest(place.endpoint, Body(place, field.name, "null"), &request));
      const auto error =
          ParseApiRequest(place.endpoint, Body(place, field.name, "12.25"), &request);
      REQUIRE(error);
      CHECK(error->status == 400);
      CHECK(error->param == field.name);
      CHECK(error->code == "unsupported_parameter");
      ++n_refused;
    }
  }
  CHECK(n_refused > 300);
  const auto problem_of = [](Endpoint endpoint, const char* body) {
    ApiRequest request;
    return ParseApiRequest(endpoint, body, &request);
  };
  const auto error = problem_of(Endpoint::kCompletions,
                                R"({"prompt":"a","messages":[{"role":"user","content":"a"}]})");
  REQUIRE(error);
  CHECK_THAT(error->message, Catch::Contains("it belongs to /v1/chat/completions"));
  // Defaults of other endpoints, as clients send them everywhere.
  CHECK_FALSE(
      problem_of(Endpoint::kMessages,
                 R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1,"n":1,"seed":null,
                     "presence_penalty":0,"frequency_penalty":0.0,"echo":false,"stop":[]})"));
  CHECK(problem_of(Endpoint::kMessages,
                   R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1,"seed":0})"));
  CHECK_FALSE(
      problem_of(Endpoint::kChat, R"({"messages":[{"role":"user","content":"a"}],"x_my_own":7})"));
}

TEST_CASE("an empty value passes at another endpoint only where it asks for nothing at its own") {
  const auto passes = [](Endpoint endpoint, const char* field) {
    const auto place = std::find_if(std::begin(kPlaces), std::end(kPlaces),
                                    [&](const Place& p) { return p.endpoint == endpoint; });
    ApiRequest request;
    const auto error = ParseApiRequest(
        endpoint, absl::StrCat(R"({"max_tokens":1,)", place->rest, ",", field, "}"), &request);
    INFO(field);
    if (error) CHECK(error->code == "unsupported_parameter");
    return !error;
  };
  for (const char* asks :
       {R"("guided_json":{})", R"("guided_json":false)", R"("guided_choice":[])",
        R"("guided_regex":"")", R"("structured_outputs":{})", R"("skip_special_tokens":false)",
        R"("include_reasoning":false)", R"("parallel_tool_calls":false)", R"("seed":0)"})
    CHECK_FALSE(passes(Endpoint::kMessages, asks));
  for (const char* asks_nothing :
       {R"("guided_json_object":false)", R"("json_schema":{})", R"("regex":"")",
        R"("logit_bias":{})", R"("stop":[])", R"("bad_words":[])", R"("skip_special_tokens":true)",
        R"("parallel_tool_calls":true)", R"("include_reasoning":true)", R"("logprobs":false)",
        R"("stream_options":{})", R"("add_special_tokens":false)"})
    CHECK(passes(Endpoint::kMessages, asks_nothing));
  // Where no tool is called, at most one is.
  CHECK(passes(Endpoint::kCompletions, R"("parallel_tool_calls":false)"));
  CHECK(passes(Endpoint::kCompletions, R"("chat_template_kwargs":{})"));
  CHECK_FALSE(passes(Endpoint::kCompletions, R"("chat_template_kwargs":{"a":1})"));
}

TEST_CASE("a field stands once at an endpoint, and says what it is") {
  std::set<std::pair<Endpoint, std::string>> seen;
  for (const Field& field : AllFields()) {
    INFO(field.name);
    for (const Place& place : kPlaces) {
      if ((field.endpoints & SetOf(place.endpoint)) == 0) continue;
      CHECK(seen.insert({place.endpoint, field.name}).second);
    }
    const auto* refused = std::get_if<RefusedRule>(&field.rule);
    const std::string words = refused != nullptr ? refused->why : field.help;
    CHECK(words.size() > 5);
    CHECK_FALSE(words.ends_with("."));
    CHECK((refused != nullptr) == std::string(field.help).empty());
  }
}

TEST_CASE("schemas of fields are JSON, and their values are what the field takes") {
  for (const Field& field : AllFields()) {
    const auto* own = std::get_if<OwnRule>(&field.rule);
    if (own == nullptr) continue;
    INFO(field.name);
    for (const char* text : {own->schema, own->good, own->bad}) REQUIRE(ParseJson(text).ok());
    CHECK(ParseJson(own->schema)->is_object());
  }
}

TEST_CASE("bodies cut off or changed at a random byte are answered, never more than a 400") {
  // Each body is a field's own sample; xorshift64 from a fixed seed chooses place and byte.
  uint64_t state = 20;
  const auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  int n_refused = 0, n_taken = 0;
  for (int round = 0; round < 12; ++round) {
    for (const Field& field : AllFields()) {
      for (const Place& place : kPlaces) {
        if ((field.endpoints & SetOf(place.endpoint)) == 0) continue;
        Samples samples;
        std::visit(samples, field.rule);
        std::vector<std::string> values = samples.good;
        values.insert(values.end(), samples.bad.begin(), samples.bad.end());
        std::string body = Body(place, field.name, values[random() % values.size()]);
        const size_t at = random() % body.size();
        if (random() % 3 == 0) {
          body.resize(at);
        } else {
          body[at] = static_cast<char>(random());
        }
        ApiRequest request;
        const auto error = ParseApiRequest(place.endpoint, body, &request);
        if (error) CHECK(error->status == 400);
        ++(error ? n_refused : n_taken);
      }
    }
  }
  CHECK(n_refused > 1000);
  CHECK(n_taken > 100);
}

}  // namespace
}  // namespace baton
