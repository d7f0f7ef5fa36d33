// Structured output by real processes: what the demo model writes is inside the grammar whatever it
// would like to write, the same when the decode worker is killed in the middle, and what is no
// grammar is refused before anything is sent.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <csignal>
#include <regex>

#include "absl/strings/str_cat.h"
#include "tests/e2e/reasoning_demo.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/temp_folder.h"
#include "tests/text/json_schema_check.h"

namespace baton {
namespace {

namespace json = boost::json;

// Compact JSON: the small model would fill the answer with white space.
constexpr const char* kSchema =
    R"({"x-guidance":{"whitespace_flexible":false},"type":"object","properties":{"name":{"type":"string","maxLength":12},)"
    R"("age":{"type":"integer","minimum":0,"maximum":99},)"
    R"("tags":{"type":"array","items":{"enum":["red","blue"]},"minItems":1,"maxItems":4}},)"
    R"("required":["name","age","tags"],"additionalProperties":false})";

std::string Chat(const std::string& fields) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"Tell me about a duck."}],)"
                      R"("max_tokens":200,)",
                      fields, "}");
}

std::string Ask(const HttpClient& client, const std::string& fields) {
  const auto response = client.Post("/v1/chat/completions", Chat(fields));
  REQUIRE(response.ok());
  INFO(response->body);
  REQUIRE(response->status == 200);
  const json::value answer = json::parse(response->body);
  const json::value& choice = answer.at("choices").at(0);
  CHECK(choice.at("finish_reason").as_string() == "stop");
  return std::string(choice.at("message").at("content").as_string());
}

// The field that an answer of 400 names.
std::string RefusedField(const HttpClient& client, const std::string& fields) {
  const auto response = client.Post("/v1/chat/completions", Chat(fields));
  REQUIRE(response.ok());
  INFO(fields << " " << response->body);
  REQUIRE(response->status == 400);
  return std::string(json::parse(response->body).at("error").at("param").as_string());
}

std::string ResponseFormat() {
  return absl::StrCat(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,)",
      R"("schema":)", kSchema, "}}");
}

bool IsValid(const std::string& text) {
  json::error_code ec;
  const json::value value = json::parse(text, ec);
  return !ec && json_schema::Validator(json::parse(kSchema)).Valid(value);
}

TEST_CASE("answers are inside their grammar, under every name and at any temperature") {
  auto served = ServedBaton::Start({"--demo"});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  for (int seed = 0; seed < 6; ++seed) {
    const std::string drawn = absl::StrCat(",\"temperature\":1.5,\"seed\":", seed);
    CHECK(IsValid(Ask(client, ResponseFormat() + drawn)));
    CHECK(IsValid(
        Ask(client, absl::StrCat(R"("structured_outputs":{"json":)", kSchema, "}", drawn))));
    CHECK(IsValid(Ask(client, absl::StrCat(R"("guided_json":)", kSchema, drawn))));
    CHECK(std::regex_match(Ask(client, R"("regex":"[a-c]{3,9}-[0-9]{2}")" + drawn),
                           std::regex("[a-c]{3,9}-[0-9]{2}")));
    const std::string chosen = Ask(client, R"("guided_choice":["a goose","two swans"])" + drawn);
    CHECK((chosen == "a goose" || chosen == "two swans"));
    const std::string sum =
        Ask(client, R"("guided_grammar":"start: N (\"+\" N){2,4}\nN: /[0-9]{1,3}/")" + drawn);
    CHECK(std::regex_match(sum, std::regex("[0-9]{1,3}(\\+[0-9]{1,3}){2,4}")));
  }
  // Choices of one request, and an answer that ends in the middle.
  const auto two =
      client.Post("/v1/chat/completions", Chat(R"("n":2,"seed":3,)" + ResponseFormat()));
  REQUIRE(two.ok());
  const json::value answer = json::parse(two->body);
  for (const json::value& choice : answer.at("choices").as_array())
    CHECK(IsValid(std::string(choice.at("message").at("content").as_string())));
  const auto cut = client.Post(
      "/v1/completions",
      R"({"prompt":"A","temperature":0,"max_tokens":1,"response_format":{"type":"json_object"}})");
  REQUIRE(cut.ok());
  CHECK_THAT(cut->body, Catch::Contains(R"("finish_reason":"length")"));

  CHECK(RefusedField(client, R"("guided_json":7)") == "guided_json");
  CHECK(RefusedField(client, R"("regex":"[.*")") == "regex");
  CHECK(RefusedField(client, R"("structured_outputs":{"json":{"type":"nonsense"}})") ==
        "structured_outputs.json");
  CHECK(RefusedField(client, R"("guided_json":{"$ref":"https://example.org/schema"})") ==
        "guided_json");
  CHECK(RefusedField(client, R"x("guided_regex":"a(?=b)")x") == "guided_regex");
  CHECK(RefusedField(client, R"("structured_outputs":{"grammar":""})") ==
        "structured_outputs.grammar");
  CHECK(RefusedField(client, R"("grammar":"root ::= \"a\"")") == "grammar");
  CHECK(RefusedField(client, R"("regex":"a","guided_regex":"a")") == "regex");
  CHECK(client.Get("/health")->status == 200);
  REQUIRE((*served)->Terminate().ok());
}

// Name and arguments of the one call of an answer.
std::pair<std::string, json::value> OnlyCall(const HttpClient& client, const std::string& fields,
                                             const char* finish) {
  const std::string tools = absl::StrCat(
      R"("tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object",)",
      R"("x-guidance":{"whitespace_flexible":false},"properties":{"city":{"enum":["Rome","Oslo"]}},)",
      R"("required":["city"],"additionalProperties":false}}},{"type":"function","function":)",
      R"({"name":"record","parameters":)", kSchema, "}}],");
  const auto response = client.Post("/v1/chat/completions", Chat(tools + fields));
  REQUIRE(response.ok());
  INFO(response->body);
  REQUIRE(response->status == 200);
  const json::value answer = json::parse(response->body);
  const json::value& choice = answer.at("choices").at(0);
  CHECK(choice.at("finish_reason").as_string() == finish);
  CHECK(choice.at("message").at("content").is_null());
  const json::array& calls = choice.at("message").at("tool_calls").as_array();
  REQUIRE(calls.size() == 1);
  const json::value& function = calls[0].at("function");
  return {std::string(function.at("name").as_string()),
          json::parse(function.at("arguments").as_string())};
}

TEST_CASE("calls that the request demands are made, with arguments by their schema") {
  auto served = ServedBaton::Start({"--demo"});
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  for (int seed = 0; seed < 6; ++seed) {
    const std::string drawn =
        absl::StrCat(R"("parallel_tool_calls":false,"temperature":1.5,"seed":)", seed, ",");
    const auto [name, arguments] =
        OnlyCall(client, drawn + R"("tool_choice":"required")", "tool_calls");
    if (name == "weather") {
      const std::string city(arguments.at("city").as_string());
      CHECK((city == "Rome" || city == "Oslo"));
    } else {
      CHECK(name == "record");
      CHECK(IsValid(json::serialize(arguments)));
    }
    const auto [named, recorded] = OnlyCall(
        client, drawn + R"("tool_choice":{"type":"function","function":{"name":"record"}})",
        "stop");
    CHECK(named == "record");
    CHECK(IsValid(json::serialize(recorded)));
  }
  CHECK(RefusedField(client, R"("tool_choice":"required")") == "tool_choice");
  CHECK(RefusedField(client, R"("tools":[{"type":"function","function":{"name":"a","strict":true,)"
                             R"("parameters":{"type":"nonsense"}}}])") == "tools");
  REQUIRE((*served)->Terminate().ok());
}

TEST_CASE("an answer goes on inside its grammar when the decode worker is killed") {
  auto served = ServedBaton::Start({"--demo"});
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  const std::string format = ResponseFormat() + R"(,"temperature":1.2,"seed":5)";
  const std::string expected = Ask(client, format);
  REQUIRE(IsValid(expected));
  int n_events = 0;
  std::string text;
  const auto response = client.Post(
      "/v1/chat/completions", Chat(format + R"(,"stream":true)"),
      [&](std::string_view data, absl::Time) {
        if (data == "[DONE]") return true;
        const json::value event = json::parse(json::string_view(data.data(), data.size()));
        REQUIRE(event.as_object().contains("choices"));
        const json::object& delta = event.at("choices").at(0).at("delta").as_object();
        if (const json::value* piece = delta.if_contains("content"))
          text += std::string(piece->as_string());
        if (++n_events == 4) ::kill((*served)->Child("decode"), SIGKILL);
        return true;
      });
  REQUIRE(response.ok());
  CHECK(n_events > 5);
  CHECK(text == expected);
  REQUIRE((*served)->Terminate().ok());
}

TEST_CASE("a budget ends the reasoning of an answer, before its grammar too") {
  const TempFolder folder;
  auto served =
      ServedBaton::Start({MakeReasoningDemo(folder), "--server.reasoning_names=reasoning"});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  const auto ask = [&](const std::string& fields) {
    const auto response =
        client.Post("/v1/chat/completions", Chat(R"("temperature":0,"min_tokens":30,)" + fields));
    REQUIRE(response.ok());
    INFO(response->body);
    REQUIRE(response->status == 200);
    return json::parse(response->body);
  };
  const auto n_reasoning = [](const json::value& answer) {
    return answer.at("usage")
        .at("completion_tokens_details")
        .at("reasoning_tokens")
        .to_number<int64_t>();
  };
  CHECK(n_reasoning(ask(R"("stream":false)")) > 20);
  for (const int budget : {0, 1, 7, 20}) {
    CAPTURE(budget);
    const std::string field = absl::StrCat(R"("thinking_token_budget":)", budget);
    const json::value plain = ask(field);
    CHECK(n_reasoning(plain) == budget);
    const json::object& message = plain.at("choices").at(0).at("message").as_object();
    CHECK_FALSE(message.at("content").as_string().empty());
    CHECK(message.at("content").as_string().find("think>") == json::string::npos);
    // Told as content, it is as long.
    const json::value joined = ask(field + R"(,"separate_reasoning":false)");
    const std::string text(joined.at("choices").at(0).at("message").at("content").as_string());
    const size_t end = text.find("</think>");
    REQUIRE(end != std::string::npos);
    if (budget > 0) CHECK(text.substr(0, end) == message.at("reasoning").as_string().c_str());
    CHECK_FALSE(message.contains("reasoning_content"));
    // With a grammar, the end of reasoning waits for the end of a character; the answer is valid.
    const json::value held = ask(absl::StrCat(field, ",", ResponseFormat()));
    CHECK(n_reasoning(held) >= budget);
    CHECK(n_reasoning(held) <= budget + 3);
    CHECK(IsValid(std::string(held.at("choices").at(0).at("message").at("content").as_string())));
  }
  CHECK(RefusedField(client, absl::StrCat(R"("thinking_token_budget":1,)", ResponseFormat(),
                                          R"(,"separate_reasoning":false)")) ==
        "thinking_token_budget");
  REQUIRE((*served)->Terminate().ok());
}

}  // namespace
}  // namespace baton
