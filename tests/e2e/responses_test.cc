// /v1/responses by real processes: conversations of several turns that find their prefix cached,
// streams, and responses that are asked for, cancelled and removed by their ids.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

std::string Text(const json::value& value) { return std::string(value.as_string()); }

json::value Create(const HttpClient& client, const std::string& fields) {
  const auto response = client.Post("/v1/responses", absl::StrCat("{", fields, "}"));
  REQUIRE(response.ok());
  INFO(fields << " " << response->body);
  REQUIRE(response->status == 200);
  return json::parse(response->body);
}

json::value Get(const HttpClient& client, const std::string& id, int status = 200) {
  const auto response = client.Get("/v1/responses/" + id);
  REQUIRE(response.ok());
  REQUIRE(response->status == status);
  return json::parse(response->body);
}

std::string OutputText(const json::value& response) {
  return Text(response.at("output").at(0).at("content").at(0).at("text"));
}

TEST_CASE("each turn finds the one before it cached, streamed or not") {
  // One prefill worker: of two, the router may choose the one that can begin first.
  auto served = ServedBaton::Start({"--demo", "--prefill", "1"});
  INFO(served.status().ToString());
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  // Longer than a page of KV, so each turn fills some.
  std::string question = "Tell me about";
  for (int i = 0; i < 24; ++i) absl::StrAppend(&question, " the duck and the cellar and");
  std::string previous;
  int64_t last_cached = -1, last_input = 0;
  for (int turn = 0; turn < 4; ++turn) {
    std::string fields =
        absl::StrCat(R"("instructions":"Be brief.","temperature":0,"max_output_tokens":70,)",
                     R"("input":")", question, "\"");
    if (turn > 0) absl::StrAppend(&fields, R"(,"previous_response_id":")", previous, "\"");
    // A stream and a whole answer to one question say the same.
    json::value streamed;
    std::string text;
    int64_t n_events = 0;
    const auto response = client.Post(
        "/v1/responses", absl::StrCat("{", fields, R"(,"stream":true})"),
        [&](std::string_view data, absl::Time) {
          const json::value event = json::parse(json::string_view(data.data(), data.size()));
          CHECK(event.at("sequence_number").to_number<int64_t>() == n_events++);
          if (event.at("type") == "response.output_text.delta") text += Text(event.at("delta"));
          if (event.at("type") == "response.completed" || event.at("type") == "response.incomplete")
            streamed = event.at("response");
          return true;
        });
    REQUIRE(response.ok());
    REQUIRE(streamed.is_object());
    CHECK(text == OutputText(streamed));
    CHECK(Get(client, Text(streamed.at("id"))) == streamed);
    const json::value whole = Create(client, fields);
    CHECK(OutputText(whole) == text);

    const json::value& usage = streamed.at("usage");
    const auto input = usage.at("input_tokens").to_number<int64_t>();
    const auto cached = usage.at("input_tokens_details").at("cached_tokens").to_number<int64_t>();
    INFO("turn " << turn << " input " << input << " cached " << cached);
    CHECK(input > last_input);
    if (turn > 0) {
      // All full pages of the prompt before it.
      CHECK(cached > last_cached);
      CHECK(cached > last_input - 64);
    }
    last_cached = cached;
    last_input = input;
    previous = Text(streamed.at("id"));
  }
  REQUIRE((*served)->Terminate().ok());
}

TEST_CASE("responses are cancelled and removed by their ids, and calls go on with them") {
  auto served = ServedBaton::Start({"--demo"});
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  std::string id;
  json::value last;
  bool is_told = false;
  std::thread canceller;
  const auto response = client.Post(
      "/v1/responses", R"({"input":"Tell me a long story.","ignore_eos":true,"stream":true})",
      [&](std::string_view data, absl::Time) {
        last = json::parse(json::string_view(data.data(), data.size()));
        if (last.at("type") != "response.created") return true;
        id = Text(last.at("response").at("id"));
        canceller = std::thread([&] {
          const auto told = client.Post("/v1/responses/" + id + "/cancel", "");
          is_told = told.ok() && told->status == 200;
        });
        return true;
      });
  canceller.join();
  CHECK(is_told);
  REQUIRE(response.ok());
  CHECK(last.at("type") == "response.incomplete");
  CHECK(last.at("response").at("status") == "cancelled");
  CHECK(Get(client, id) == last.at("response"));

  // Calls that are demanded, and their outputs in the turn after.
  const std::string tools =
      R"("temperature":0,"max_output_tokens":100,"tools":[{"type":"function","name":"weather",)"
      R"("parameters":{"type":"object","x-guidance":{"whitespace_flexible":false},"properties":{)"
      R"("city":{"enum":["Rome","Oslo"]}},"required":["city"],"additionalProperties":false}},)"
      R"({"type":"custom","name":"dial","format":{"type":"grammar","syntax":"regex",)"
      R"("definition":"[0-9]{3}-[0-9]{2}"}}])";
  const json::value called =
      Create(client, tools + R"(,"input":"The weather?","tool_choice":{"type":"function",)"
                             R"("name":"weather"})");
  const json::value& call = called.at("output").at(0);
  CHECK(call.at("type") == "function_call");
  const std::string city = Text(json::parse(call.at("arguments").as_string()).at("city"));
  CHECK((city == "Rome" || city == "Oslo"));
  const json::value dialled = Create(
      client, absl::StrCat(tools, R"(,"previous_response_id":)", json::serialize(called.at("id")),
                           R"(,"input":[{"type":"function_call_output","call_id":)",
                           json::serialize(call.at("call_id")), R"(,"output":"sunny"}],)",
                           R"("tool_choice":{"type":"custom","name":"dial"})"));
  const std::string number = Text(dialled.at("output").at(0).at("input"));
  CHECK(number.size() == 6);
  CHECK(number[3] == '-');

  RawClient raw((*served)->url().port);
  REQUIRE(raw.Send(absl::StrCat("DELETE /v1/responses/", id,
                                " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")));
  REQUIRE(raw.ReadToEnd());
  CHECK_THAT(raw.received, Catch::Contains(R"("deleted":true)"));
  Get(client, id, 404);
  REQUIRE((*served)->Terminate().ok());
}

}  // namespace
}  // namespace baton
