// Anthropic's /v1/messages: conversations become those of the chat, answers are blocks, whole and
// streamed alike, and errors have the API's own shape.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/server/api/asked_answer.h"
#include "tests/server/api/served_api.h"

namespace baton {
namespace {

namespace json = boost::json;

std::string Body(const std::string& more = "") {
  return absl::StrCat(R"({"max_tokens":50,"messages":[{"role":"user","content":"hi"}])", more, "}");
}
const std::string kTools =
    R"(,"tools":[{"name":"sum","description":"d","input_schema":{"type":"object"}}])";

ApiRequest Parsed(const std::string& body) {
  ApiRequest request;
  const auto problem = ParseApiRequest(Endpoint::kMessages, body, &request);
  INFO(body << " " << (problem ? problem->message : ""));
  REQUIRE_FALSE(problem);
  return request;
}

std::string RefusedField(const std::string& body) {
  ApiRequest request;
  const auto problem = ParseApiRequest(Endpoint::kMessages, body, &request);
  INFO(body);
  REQUIRE(problem);
  return problem->param;
}

TEST_CASE("a conversation with calls, results and reasoning as the chat has it") {
  const ApiRequest request = Parsed(R"({"max_tokens":5,"model":"","messages":[
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"text","text":"c"},{"type":"tool_use","id":"toolu_x1","name":"f","input":{"k":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_x1",
        "content":[{"type":"text","text":"r"}]},{"type":"text","text":"d"}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_x2"}]}],
      "system":[{"type":"text","text":"x-anthropic-billing-header: 7"},
        {"type":"text","text":"s","cache_control":{"type":"ephemeral"}},
        {"type":"text","text":"t"}]})");
  CHECK(request.messages ==
        R"([{"role":"system","content":"s\nt"},{"role":"user","content":"a\nb"},)"
        R"({"role":"assistant","content":"c","reasoning_content":"hm","tool_calls":[{"id":"x1",)"
        R"("type":"function","function":{"name":"f","arguments":{"k":1}}}]},)"
        R"({"role":"tool","tool_call_id":"x1","content":"r"},{"role":"user","content":"d"},)"
        R"({"role":"tool","tool_call_id":"x2","content":""}])");
  CHECK(request.add_generation_prompt);
  const ApiRequest begun = Parsed(
      R"({"max_tokens":5,"messages":[{"role":"user","content":"a"},
          {"role":"assistant","content":"It is"}]})");
  CHECK(begun.continue_final_message);
  CHECK_FALSE(begun.add_generation_prompt);
}

TEST_CASE("tools, their choice, and other fields") {
  const ApiRequest request =
      Parsed(Body(kTools + R"(,"tool_choice":{"type":"any","disable_parallel_tool_use":true},
          "stop_sequences":["x","y"],"top_k":3,"thinking":{"type":"disabled"},"stream":true)"));
  REQUIRE(request.callable_tools.size() == 1);
  CHECK(request.callable_tools[0].name == "sum");
  CHECK(request.tool_choice == ToolChoice::kRequired);
  CHECK_FALSE(request.parallel_tool_calls);
  CHECK(request.stop == std::vector<std::string>{"x", "y"});
  CHECK(request.template_variables == R"({"enable_thinking":false})");
  CHECK(Parsed(Body(kTools + R"(,"tool_choice":{"type":"tool","name":"sum"})")).tool_choice ==
        ToolChoice::kNamed);
  CHECK(Parsed(Body(kTools + R"(,"tool_choice":{"type":"none"})")).callable_tools.empty());

  CHECK(RefusedField(R"({"messages":[{"role":"user","content":"a"}]})") == "max_tokens");
  CHECK(RefusedField(R"({"max_tokens":5})") == "messages");
  CHECK(RefusedField(Body(R"(,"temperature":1.5)")) == "temperature");
  CHECK(RefusedField(Body(kTools + R"(,"tool_choice":{"type":"tool","name":"g"})")) ==
        "tool_choice.name");
  CHECK(RefusedField(Body(R"(,"tool_choice":{"type":"tool","name":"g"})")) == "tool_choice");
  CHECK(RefusedField(Body(R"(,"cache_salt":"")")) == "cache_salt");
  CHECK(RefusedField(Body(absl::StrCat(R"(,"cache_salt":")", std::string(1025, 'a'), "\""))) ==
        "cache_salt");
  CHECK(Parsed(Body(absl::StrCat(R"(,"cache_salt":")", std::string(1024, 'a'), "\"")))
            .cache_salt.size() == 1024);
  CHECK(RefusedField(
            R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})") ==
        "messages[0].content[0].type");
  CHECK(RefusedField(Body(R"(,"tools":[{"name":"f"}])")) == "tools[0].input_schema");
}

struct Asked {
  ApiRequest request;
  std::vector<PreparedPrompt> prompts;
  std::unique_ptr<Answer> answer;

  Asked(const std::string& body, const ServedModel& model) {
    REQUIRE_FALSE(kMessagesApi.parse(body, {}, &request));
    REQUIRE_FALSE(PreparePrompts(model, request, 0, {}, &prompts));
    answer = kMessagesApi.answer(model, request, prompts, {.id = "id1"});
  }
  // All bytes of the answer of a model that writes `text`.
  std::string Write(const std::string& text, EndReason reason) {
    std::string out;
    for (const int32_t id : Ids(text)) {
      EmitToken token;
      token.token = id;
      out += answer->OnToken(0, token);
    }
    if (reason == EndReason::kStopToken) {
      EmitToken stop;
      stop.token = Demo().eos_tokens[0];
      out += answer->OnToken(0, stop);
    }
    EmitEnd end;
    end.reason = reason;
    end.timeline.reused_tokens = 2;
    out += answer->OnChoiceEnd(0, end);
    return out + answer->OnEnd();
  }
};

// The message that a client puts together from the events.
json::object Listen(const std::string& stream) {
  json::object message;
  std::string input;
  bool is_over = false;
  for (const auto event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const std::vector<std::string> lines = absl::StrSplit(event, '\n');
    REQUIRE(lines.size() == 2);
    const json::value data = json::parse(lines[1].substr(6));
    CHECK(lines[0] == "event: " + std::string(data.at("type").as_string()));
    const std::string type(data.at("type").as_string());
    CHECK_FALSE(is_over);
    if (type == "message_start") {
      message = data.at("message").as_object();
    } else if (type == "content_block_start") {
      CHECK(data.at("index") == message["content"].as_array().size());
      message["content"].as_array().push_back(data.at("content_block"));
      input.clear();
    } else if (type == "content_block_delta") {
      json::object& block = message["content"].as_array().back().as_object();
      const json::object& delta = data.at("delta").as_object();
      if (const json::value* part = delta.if_contains("partial_json")) {
        input += std::string(part->as_string());
      } else {
        const char* member = delta.contains("text") ? "text" : "thinking";
        block[member] =
            std::string(block[member].as_string()) + std::string(delta.at(member).as_string());
      }
    } else if (type == "content_block_stop") {
      json::object& block = message["content"].as_array().back().as_object();
      if (block["type"] == "tool_use") block["input"] = json::parse(input);
    } else if (type == "message_delta") {
      message["stop_reason"] = data.at("delta").at("stop_reason");
      message["stop_sequence"] = data.at("delta").at("stop_sequence");
      message["usage"] = data.at("usage");
    } else {
      CHECK(type == "message_stop");
      is_over = true;
    }
  }
  CHECK(is_over);
  return message;
}

TEST_CASE("an answer is blocks, and its stream tells the same") {
  const std::unique_ptr<ServedModel> model = LoadDemo();
  model->answer_format.reasoning = ReasoningFormat::kThinkTags;
  const std::string text =
      "<think>hm</think>\n\nLook.\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of\": [1]}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {}}\n</tool_call>";
  for (const EndReason reason : {EndReason::kStopToken, EndReason::kLength}) {
    const std::string whole = Asked(Body(kTools), *model).Write(text, reason);
    const json::value message = json::parse(whole);
    CHECK(json::value(Listen(
              Asked(Body(kTools + R"(,"stream":true)"), *model).Write(text, reason))) == message);
    const json::array& content = message.at("content").as_array();
    REQUIRE(content.size() == 4);
    CHECK(content[0].at("thinking") == "hm");
    CHECK(content[1].at("text") == "Look.");
    CHECK(content[2].at("name") == "sum");
    CHECK(json::serialize(content[2].at("input")) == R"({"of":[1]})");
    CHECK(content[2].at("id").as_string().starts_with("toolu_"));
    CHECK(content[3].at("id") != content[2].at("id"));
    CHECK(message.at("stop_reason") == (reason == EndReason::kLength ? "max_tokens" : "tool_use"));
    const json::object& usage = message.at("usage").as_object();
    CHECK(usage.at("cache_read_input_tokens") == 2);
    CHECK(usage.at("output_tokens").to_number<size_t>() ==
          Ids(text).size() + (reason == EndReason::kStopToken ? 1 : 0));
  }
  const json::value stopped = json::parse(Asked(Body(R"(,"stop_sequences":["two"])"), Demo())
                                              .Write("one two three", EndReason::kLength));
  CHECK(stopped.at("stop_reason") == "stop_sequence");
  CHECK(stopped.at("stop_sequence") == "two");
  CHECK(stopped.at("content").at(0).at("text") == "one ");
  const json::value cut = json::parse(
      Asked(Body(kTools), Demo())
          .Write("<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of", EndReason::kLength));
  CHECK(cut.at("content").at(0).at("input").at("INVALID_JSON") == "{\"of");
}

TEST_CASE("through the front: answers, counts, and errors in the API's shape") {
  Served served;
  const HttpClient client = served.Client();
  const auto answer = client.Post("/v1/messages", Body());
  REQUIRE(answer.ok());
  CHECK(answer->status == 200);
  CHECK(json::parse(answer->body).at("type") == "message");
  CHECK(answer->headers.at("request-id") == answer->headers.at("x-request-id"));
  CHECK_FALSE(client.Get("/health")->headers.contains("request-id"));
  const auto count =
      client.Post("/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"hi"}]})");
  REQUIRE(count.ok());
  served.On([&] {
    CHECK(json::parse(count->body).at("input_tokens").to_number<size_t>() ==
          served.generator->submitted[0].prompt.size());
  });
  const auto check_error = [&](const std::string& path, const std::string& body, int status,
                               const char* type) {
    const auto response = client.Post(path, body);
    REQUIRE(response.ok());
    INFO(path << " " << response->body);
    CHECK(response->status == status);
    const json::value error = json::parse(response->body);
    CHECK(error.at("type") == "error");
    CHECK(error.at("error").at("type") == type);
    const std::string id = response->headers.at("x-request-id");
    CHECK(response->headers.at("request-id") == id);  // Anthropic's SDK reads this name
    CHECK(std::string(error.at("request_id").as_string()) == id);
  };
  check_error("/v1/messages", "{", 400, "invalid_request_error");
  check_error("/v1/messages", Body(R"(,"model":"other")"), 404, "not_found_error");
  check_error("/v1/messages/count_tokens", R"({"messages":[]})", 400, "invalid_request_error");
  const auto image = client.Post("/v1/messages", R"({"max_tokens":5,"messages":[{"role":"user",)"
                                                 R"("content":[{"type":"image"}]}]})");
  REQUIRE(image.ok());
  CHECK_THAT(image->body, Catch::Contains("messages[0].content[0]"));
  const auto long_one = client.Post("/v1/messages", R"({"max_tokens":2000000000,"messages":[)"
                                                    R"({"role":"user","content":"a"}]})");
  REQUIRE(long_one.ok());
  CHECK(long_one->status == 400);
  CHECK_THAT(long_one->body, Catch::Contains("(max_tokens)"));
  check_error("/v1/messages/batches", "{}", 404, "not_found_error");
  served.On([&] { served.generator->refusal = absl::ResourceExhaustedError("full"); });
  check_error("/v1/messages", Body(), 429, "rate_limit_error");
}

}  // namespace
}  // namespace baton
