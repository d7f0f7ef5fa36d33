// /v1/responses as bytes: items become messages of the chat, answers are items, whole and streamed
// alike, and what is wrong is refused by its path.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/api/answer_store.h"
#include "server/api/prepared_request.h"
#include "tests/server/api/asked_answer.h"

namespace baton {
namespace {

namespace json = boost::json;

std::string Body(const std::string& more = "") {
  return absl::StrCat(R"({"input":"hi","max_output_tokens":50)", more, "}");
}
const std::string kTools =
    R"(,"tools":[{"type":"function","name":"sum","parameters":{"type":"object"}},)"
    R"({"type":"custom","name":"shell","description":"d"}])";

ApiRequest Parsed(const std::string& body) {
  ApiRequest request;
  const auto problem = ParseApiRequest(Endpoint::kResponses, body, &request);
  INFO(body << " " << (problem ? problem->message : ""));
  REQUIRE_FALSE(problem);
  REQUIRE_FALSE(ReadConversation(0, &request));
  return request;
}

std::string RefusedField(const std::string& body, const std::string& code = "") {
  ApiRequest request;
  const auto problem = ParseApiRequest(Endpoint::kResponses, body, &request);
  INFO(body);
  REQUIRE(problem);
  CHECK(problem->status == 400);
  if (!code.empty()) CHECK(problem->code == code);
  return problem->param;
}

TEST_CASE("items are the messages of a chat, and instructions stand before them") {
  const ApiRequest request = Parsed(R"({"instructions":"Be brief.","input":[
      {"role":"developer","content":"d"},
      {"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
      {"type":"message","role":"assistant","id":"msg_1","status":"completed",
        "content":[{"type":"output_text","text":"c","annotations":[]}]},
      {"type":"function_call","call_id":"x1","name":"f","arguments":"{\"k\":1}"},
      {"type":"custom_tool_call","call_id":"x2","name":"g","input":"ls \"a\""},
      {"type":"function_call_output","call_id":"x1","output":"r"},
      {"type":"custom_tool_call_output","call_id":"x2","output":[{"type":"input_text","text":"s"}]},
      {"role":"assistant","content":"e"},
      {"role":"assistant","content":"f"},
      {"role":"user","content":"g"}]})");
  CHECK(request.messages ==
        R"([{"role":"system","content":"Be brief."},{"role":"system","content":"d"},)"
        R"({"role":"user","content":"a\nb"},)"
        R"({"role":"assistant","content":"c","reasoning_content":"hm","tool_calls":[{"id":"x1",)"
        R"("type":"function","function":{"name":"f","arguments":{"k":1}}},{"id":"x2",)"
        R"("type":"function","function":{"name":"g","arguments":{"input":"ls \"a\""}}}]},)"
        R"({"role":"tool","tool_call_id":"x1","content":"r"},)"
        R"({"role":"tool","tool_call_id":"x2","content":"s"},)"
        R"({"role":"assistant","content":"e"},{"role":"assistant","content":"f"},)"
        R"({"role":"user","content":"g"}])");
  CHECK(request.store);
  CHECK_FALSE(Parsed(Body(R"(,"store":false)")).store);
  // Instructions are no part of the conversation that is handed on.
  CHECK(Parsed(Body(R"(,"instructions":"i")")).response.conversation ==
        R"([{"role":"user","content":"hi"}])");
}

TEST_CASE("tools, their choice, and other fields") {
  const ApiRequest request = Parsed(
      Body(kTools + R"(,"tool_choice":{"type":"custom","name":"shell"},"reasoning":{"effort":"low"},
      "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"integer"}}},
      "include":["message.output_text.logprobs"],"top_logprobs":2,"truncation":"auto")"));
  REQUIRE(request.callable_tools.size() == 1);
  CHECK(request.callable_tools[0].name == "shell");
  CHECK_THAT(request.callable_tools[0].parameters, Catch::Contains(R"("input":{"type":"string"})"));
  CHECK(request.tool_choice == ToolChoice::kNamed);
  CHECK(request.template_variables == R"({"reasoning_effort":"low"})");
  CHECK(request.grammar.kind == GrammarKind::kJsonSchema);
  CHECK(request.grammar_path == "text.format.schema");
  CHECK(request.top_logprobs == 2);
  CHECK(request.response.truncates);
  const std::string deep = std::string(50, '[') + std::string(50, ']');
  CHECK(Parsed(Body(absl::StrCat(R"(,"reasoning":{"effort":"low"},"chat_template_kwargs":{"a":)",
                                 deep, "}")))
            .template_variables == absl::StrCat(R"({"a":)", deep, R"(,"reasoning_effort":"low"})"));
  const std::string allowed = R"(,"tool_choice":{"type":"allowed_tools","mode":"required",)"
                              R"("tools":[{"type":"function","name":"sum"}]})";
  CHECK(Parsed(Body(kTools + allowed)).tool_choice == ToolChoice::kRequired);
  CHECK(Parsed(Body(kTools + allowed)).callable_tools.size() == 1);
  CHECK(Parsed(Body(kTools + R"(,"tool_choice":"none")")).callable_tools.empty());
  const ApiRequest held = Parsed(
      Body(R"(,"tools":[{"type":"custom","name":"d","format":{"type":"grammar","syntax":"regex",)"
           R"("definition":"[0-9]+"}}])"));
  CHECK(held.callable_tools[0].strict);
  CHECK_THAT(held.callable_tools[0].parameters, Catch::Contains(R"("pattern":"^(?:[0-9]+)$")"));
}

TEST_CASE("what is wrong is refused by its path") {
  const auto item = [](const std::string& text) {
    return absl::StrCat(R"({"input":[)", text, "]}");
  };
  CHECK(RefusedField("{}", "missing_required_parameter") == "input");
  CHECK(RefusedField(item(R"({"role":"user","content":[{"type":"input_text","text":"a"},)"
                          R"({"type":"input_image","image_url":"u"}]})"),
                     "unsupported_parameter") == "input[0].content[1].type");
  CHECK(RefusedField(item(R"({"role":"user","content":[{"type":"input_audio"}]})"),
                     "unsupported_parameter") == "input[0].content[0].type");
  CHECK(RefusedField(item(R"({"type":"function_call_output","call_id":"a",)"
                          R"("output":[{"type":"input_image"}]})")) == "input[0].output[0].type");
  CHECK(RefusedField(item(R"({"type":"item_reference","id":"a"})"), "unsupported_parameter") ==
        "input[0].type");
  CHECK(RefusedField(item(R"({"type":"function_call","call_id":"a","name":"f",)"
                          R"("arguments":"{a"})")) == "input[0].arguments");
  CHECK(RefusedField(Body(R"(,"background":true)"), "unsupported_parameter") == "background");
  CHECK(RefusedField(Body(R"(,"conversation":"c")"), "unsupported_parameter") == "conversation");
  CHECK(RefusedField(Body(R"(,"max_tokens":5)"), "unsupported_parameter") == "max_tokens");
  CHECK(RefusedField(Body(R"(,"tools":[{"type":"web_search"}])"), "unsupported_parameter") ==
        "tools[0].type");
  CHECK(RefusedField(Body(kTools + R"(,"tool_choice":{"type":"function","name":"other"})")) ==
        "tool_choice.name");
  CHECK(RefusedField(Body(R"(,"tools":[{"type":"function","name":"f"},)"
                          R"({"type":"custom","name":"f"}])")) == "tools[1].name");
  CHECK(RefusedField(Body(R"(,"tool_choice":"required")")) == "tool_choice");
  CHECK(RefusedField(Body(R"(,"text":{"format":{"type":"json_schema","schema":7}})")) ==
        "text.format.schema");
  CHECK(RefusedField(Body(R"(,"metadata":{"a":1})"), "invalid_type") == "metadata.a");
  CHECK(RefusedField(Body(R"(,"top_logprobs":21)")) == "top_logprobs");
}

struct Asked {
  AnswerStore store{AnswerStoreOptions()};
  PreparedRequest prepared;
  std::unique_ptr<Answer> answer;

  explicit Asked(const std::string& body, const ServedModel& model = Demo()) {
    prepared.Read(kResponsesApi, model, {}, 0, body);
    INFO((prepared.error ? prepared.error->message : ""));
    REQUIRE_FALSE(prepared.error);
    answer = kResponsesApi.answer(
        model, prepared.request, prepared.prompts,
        {.id = "id1", .created = 1700000000, .unique_id = "u", .store = &store});
  }
  std::string Token(int32_t id) {
    EmitToken token;
    token.token = id;
    token.logprob = -0.5f;
    return answer->OnToken(0, token);
  }
  std::string Tokens(const std::string& text) {
    std::string out;
    for (const int32_t id : Ids(text)) out += Token(id);
    return out;
  }
  std::string End(EndReason reason) {
    EmitEnd end;
    end.reason = reason;
    end.timeline.reused_tokens = 2;
    std::string out = answer->OnChoiceEnd(0, end);
    out += answer->OnEnd();
    answer->Store();
    return out;
  }
  // All bytes of the answer of a model that writes `text`.
  std::string Write(const std::string& text, EndReason reason) {
    std::string out = Tokens(text);
    if (reason == EndReason::kStopToken) out += Token(Demo().eos_tokens[0]);
    return out + End(reason);
  }
  const StoredAnswer* stored() { return store.Find(StoredKind::kResponse, "", "resp_u"); }
};

std::vector<json::object> EventsOf(const std::string& stream) {
  std::vector<json::object> events;
  for (const auto event : absl::StrSplit(stream, "\n\n", absl::SkipEmpty())) {
    const std::vector<std::string> lines = absl::StrSplit(event, '\n');
    REQUIRE(lines.size() == 2);
    events.push_back(json::parse(lines[1].substr(6)).as_object());
    CHECK(lines[0] == "event: " + std::string(events.back().at("type").as_string()));
    CHECK(events.back().at("sequence_number") == events.size() - 1);
  }
  return events;
}

std::string Types(const std::vector<json::object>& events) {
  std::string types, last;
  for (const json::object& event : events) {
    const auto type = std::string(event.at("type").as_string()).substr(9);  // after "response."
    if (type != last) absl::StrAppend(&types, types.empty() ? "" : " ", type);
    last = type;
  }
  return types;
}

// The items that a client puts together from the events, which must be those that are told as done.
json::array Listen(const std::vector<json::object>& events) {
  json::array items;
  for (const json::object& event : events) {
    const std::string type(event.at("type").as_string());
    if (!event.contains("output_index")) continue;
    const auto index = event.at("output_index").to_number<size_t>();
    if (type == "response.output_item.added") {
      CHECK(index == items.size());
      items.push_back(event.at("item"));
      continue;
    }
    REQUIRE(index == items.size() - 1);
    json::object& item = items.back().as_object();
    const auto append = [&](json::object& to, const char* member) {
      to[member] = std::string(to[member].as_string()) + std::string(event.at("delta").as_string());
    };
    if (type == "response.content_part.added") {
      item["content"].as_array().push_back(event.at("part"));
    } else if (type == "response.output_text.delta" || type == "response.reasoning_text.delta") {
      append(item["content"].as_array()[0].as_object(), "text");
    } else if (type == "response.function_call_arguments.delta") {
      append(item, "arguments");
    } else if (type == "response.custom_tool_call_input.delta") {
      append(item, "input");
    } else if (type == "response.content_part.done") {
      CHECK(event.at("part") == item["content"].as_array()[0]);
    } else if (type == "response.output_item.done") {
      if (item.contains("status")) item["status"] = event.at("item").at("status");
      CHECK(event.at("item") == json::value(item));
    } else if (type.ends_with(".done")) {
      for (const char* member : {"text", "arguments", "input"}) {
        if (!event.contains(member)) continue;
        const json::object& holder =
            std::string(member) == "text" ? item["content"].as_array()[0].as_object() : item;
        CHECK(event.at(member) == holder.at(member));
      }
    }
    if (event.contains("item_id")) CHECK(event.at("item_id") == item["id"]);
  }
  return items;
}

TEST_CASE("an answer is items, and its stream tells the same in numbered events") {
  const std::unique_ptr<ServedModel> model = LoadDemo();
  model->answer_format.reasoning = ReasoningFormat::kThinkTags;
  const std::string text =
      "<think>hm</think>\n\nLook.\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of\": [1]}}\n"
      "</tool_call>\n<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"input\": \"ls "
      "\\\"a\\\"\"}}"
      "\n</tool_call>";
  Asked whole(Body(kTools), *model);
  const json::object response = json::parse(whole.Write(text, EndReason::kStopToken)).as_object();
  Asked streamed(Body(kTools + R"(,"stream":true)"), *model);
  const auto events = EventsOf(streamed.Write(text, EndReason::kStopToken));
  CHECK(Types(events) ==
        "created in_progress output_item.added content_part.added reasoning_text.delta "
        "reasoning_text.done content_part.done output_item.done output_item.added "
        "content_part.added output_text.delta output_text.done content_part.done "
        "output_item.done output_item.added function_call_arguments.delta "
        "function_call_arguments.done output_item.done output_item.added "
        "custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed");
  CHECK(events.front().at("response").at("status") == "in_progress");
  CHECK(events.front().at("response").at("usage").is_null());
  CHECK(events.back().at("response") == json::value(response));
  const json::array& output = response.at("output").as_array();
  CHECK(Listen(events) == output);
  REQUIRE(output.size() == 4);
  CHECK(output[0].at("content").at(0).at("text") == "hm");
  CHECK(output[1].at("content").at(0).at("text") == "Look.");
  CHECK(output[2].at("arguments") == R"({"of": [1]})");
  CHECK(output[3].at("input") == "ls \"a\"");
  CHECK(output[3].at("type") == "custom_tool_call");
  CHECK(output[3].at("call_id") != output[2].at("call_id"));
  CHECK(response.at("status") == "completed");
  CHECK(response.at("id") == "resp_u");
  const json::object& usage = response.at("usage").as_object();
  CHECK(usage.at("input_tokens_details").at("cached_tokens") == 2);
  CHECK(usage.at("output_tokens").to_number<size_t>() == Ids(text).size() + 1);
  CHECK(usage.at("output_tokens_details").at("reasoning_tokens").to_number<int>() > 0);
  // The stored answer is what the client got, and goes on as the model wrote it.
  REQUIRE(streamed.stored() != nullptr);
  CHECK(json::parse(streamed.stored()->body) == json::value(response));
  CHECK(
      streamed.stored()->conversation ==
      absl::StrCat(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"Look.",)",
                   R"("reasoning_content":"hm","tool_calls":[{"id":)",
                   json::serialize(output[2].at("call_id")),
                   R"(,"type":"function","function":{"name":"sum","arguments":{"of":[1]}}},{"id":)",
                   json::serialize(output[3].at("call_id")),
                   R"(,"type":"function","function":{"name":"shell","arguments":)",
                   R"({"input":"ls \"a\""}}}]}])"));
}

TEST_CASE("the whole object says what was asked for") {
  Asked asked(Body(kTools + R"(,"instructions":"i","metadata":{"k":"v"},"temperature":0.5,
      "top_p":0.25,"text":{"format":{"type":"text"},"verbosity":"low"},"user":"me",
      "reasoning":{"effort":"high"},"tool_choice":"auto","truncation":"disabled")"));
  const json::object response = json::parse(asked.Write("A", EndReason::kStopToken)).as_object();
  CHECK(response.at("object") == "response");
  CHECK(response.at("created_at") == 1700000000);
  CHECK(response.at("instructions") == "i");
  CHECK(response.at("metadata") == json::parse(R"({"k":"v"})"));
  CHECK(response.at("temperature") == 0.5);
  CHECK(response.at("top_p") == 0.25);
  CHECK(response.at("max_output_tokens") == 50);
  CHECK(response.at("text") == json::parse(R"({"format":{"type":"text"},"verbosity":"low"})"));
  CHECK(response.at("reasoning").at("effort") == "high");
  CHECK(response.at("tools").as_array().size() == 2);
  CHECK(response.at("tool_choice") == "auto");
  CHECK(response.at("user") == "me");
  CHECK(response.at("model") == "demo");
  CHECK(response.at("store") == true);
  CHECK(response.at("previous_response_id").is_null());
  CHECK(response.at("error").is_null());
}

// Bytes that come at once because the request is long are no sign of a client that does not read.
TEST_CASE("what events tell of the request counts as told of the prompt") {
  json::object metadata;
  for (int i = 0; i < 16; ++i) metadata[absl::StrCat("k", i)] = std::string(500, 'x');
  const std::string more = absl::StrCat(R"(,"metadata":)", json::serialize(metadata));
  Asked streamed(Body(more + R"(,"stream":true)"));
  CHECK(streamed.answer->prompt_bytes() == 0);
  streamed.Token(Ids("A")[0]);
  CHECK(streamed.answer->prompt_bytes() > 2 * 8000);
  streamed.answer->OnChoiceEnd(0, {});
  streamed.answer->OnEnd();
  CHECK(streamed.answer->prompt_bytes() > 3 * 8000);
  CHECK(streamed.answer->prompt_bytes() < 3 * 9000);
  Asked whole(Body(more));
  whole.Token(Ids("A")[0]);
  CHECK(whole.answer->prompt_bytes() == 0);
}

TEST_CASE("an answer that is cut, stopped, empty, cancelled or failed says so") {
  Asked cut(Body(R"(,"stream":true)"));
  const auto events = EventsOf(cut.Write("one two", EndReason::kLength));
  CHECK(events.back().at("type") == "response.incomplete");
  const json::object& incomplete = events.back().at("response").as_object();
  CHECK(incomplete.at("incomplete_details").at("reason") == "max_output_tokens");
  CHECK(incomplete.at("output").at(0).at("status") == "incomplete");
  CHECK(Listen(events) == incomplete.at("output").as_array());

  Asked stopped(Body(R"(,"stop":["two"])"));
  const json::value told = json::parse(stopped.Write("one two three", EndReason::kLength));
  CHECK(told.at("status") == "completed");
  CHECK(told.at("output").at(0).at("content").at(0).at("text") == "one ");

  Asked empty(Body(R"(,"stream":true)"));
  const auto none = EventsOf(empty.Write("", EndReason::kStopToken));
  CHECK(Types(none) ==
        "created in_progress output_item.added content_part.added output_text.done "
        "content_part.done output_item.done completed");
  CHECK(Listen(none) == none.back().at("response").at("output").as_array());

  Asked cancelled(Body(R"(,"stream":true)"));
  std::string stream = cancelled.Tokens("one two");
  CHECK(json::parse(cancelled.stored()->body).at("status") == "in_progress");
  CHECK(cancelled.stored()->conversation.empty());
  CHECK(cancelled.answer->stored_id() == "resp_u");
  cancelled.answer->Cancel();
  stream += cancelled.End(EndReason::kCancelled);
  CHECK(json::parse(cancelled.stored()->body).at("status") == "cancelled");
  CHECK_FALSE(cancelled.stored()->conversation.empty());
  const auto ended = EventsOf(stream);
  CHECK(ended.back().at("type") == "response.incomplete");
  CHECK(ended.back().at("response").at("status") == "cancelled");
  CHECK(ended.back().at("response").at("output").at(0).at("status") == "incomplete");
  CHECK(ended.back().at("response").at("output").at(0).at("content").at(0).at("text") == "one two");
  CHECK(cancelled.stored()->is_cancelled);

  Asked failed(Body(R"(,"stream":true)"));
  stream = failed.Tokens("one");
  stream += failed.answer->OnError(FromClusterStatus(absl::AbortedError("lost")));
  failed.answer->Store();
  const auto broken = EventsOf(stream);
  CHECK(broken.back().at("type") == "response.failed");
  CHECK(broken.back().at("response").at("error").at("code") == "server_error");
  CHECK(broken.back().at("response").at("error").at("message") == "lost");
  CHECK(json::parse(failed.stored()->body).at("status") == "failed");

  Asked early(Body(R"(,"stream":true)"));
  CHECK(Types(EventsOf(early.answer->OnError(FromClusterStatus(absl::AbortedError("lost"))))) ==
        "created in_progress failed");
  Asked unbegun(Body(R"(,"stream":true)"));
  unbegun.answer->Cancel();
  CHECK(Types(EventsOf(unbegun.End(EndReason::kCancelled))) == "created in_progress incomplete");
  CHECK(unbegun.stored()->is_cancelled);

  Asked unstored(Body(R"(,"store":false)"));
  unstored.Write("one", EndReason::kStopToken);
  CHECK(unstored.store.size() == 0);
  CHECK(unstored.answer->stored_id().empty());
  Asked discarded(Body());
  discarded.Tokens("one");
  discarded.answer->Discard();
  discarded.store.Erase(StoredKind::kResponse, "", "resp_u");
  discarded.End(EndReason::kLength);
  CHECK(discarded.store.size() == 0);
}

TEST_CASE("log-probabilities are those of the text, in its events and in its part") {
  const std::unique_ptr<ServedModel> model = LoadDemo();
  model->answer_format.reasoning = ReasoningFormat::kThinkTags;
  Asked asked(Body(R"(,"stream":true,"top_logprobs":0,"include":["message.output_text.logprobs"])"),
              *model);
  const auto events =
      EventsOf(asked.Write("<think>one two</think>three four", EndReason::kStopToken));
  std::string of_events, of_part;
  for (const json::object& event : events) {
    if (event.at("type") != "response.output_text.delta") continue;
    for (const json::value& token : event.at("logprobs").as_array()) {
      of_events += std::string(token.at("token").as_string());
      CHECK_FALSE(token.as_object().contains("bytes"));
    }
  }
  const json::value& part = events.back().at("response").at("output").at(1).at("content").at(0);
  for (const json::value& token : part.at("logprobs").as_array()) {
    of_part += std::string(token.at("token").as_string());
    CHECK(token.at("logprob") == -0.5);
    CHECK(token.at("top_logprobs").as_array().empty());
    CHECK_FALSE(token.at("bytes").as_array().empty());
  }
  CHECK(of_part == "three four");
  CHECK(of_events == of_part);
}

TEST_CASE("a prompt goes on with the bytes of the prompt and the answer before it") {
  Asked first(Body(R"(,"instructions":"Be brief.")"));
  first.Write("one two", EndReason::kStopToken);
  ApiRequest request;
  PreparedRequest second;
  second.Read(kResponsesApi, Demo(), {}, 0,
              R"({"input":"more","instructions":"Be brief.","previous_response_id":"resp_u"})");
  REQUIRE_FALSE(second.error);
  CHECK(second.needs_conversation());
  second.GoOn(
      Demo(), 0,
      absl::StrCat(first.stored()->conversation.substr(0, first.stored()->conversation.size() - 1),
                   R"(,{"role":"user","content":"more"}])"));
  REQUIRE_FALSE(second.error);
  CHECK_FALSE(second.needs_conversation());
  std::vector<int32_t> before = first.prepared.prompts[0].generate.prompt;
  for (const int32_t id : Ids("one two")) before.push_back(id);
  const std::vector<int32_t>& now = second.prompts[0].generate.prompt;
  REQUIRE(now.size() > before.size());
  CHECK(std::vector<int32_t>(now.begin(), now.begin() + static_cast<ptrdiff_t>(before.size())) ==
        before);
}

std::string PromptOf(const PreparedRequest& prepared) {
  return Demo().tokenizer->Decode(prepared.prompts[0].generate.prompt, false).value();
}

TEST_CASE("with truncation auto the oldest messages go, and no more than must") {
  std::string items;
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&items, i == 0 ? "" : ",", R"({"role":"user","content":"message number )", i,
                    R"( of many"})");
  const std::string body = absl::StrCat(R"({"max_output_tokens":10,"input":[)", items, "]");
  PreparedRequest refused;
  refused.Read(kResponsesApi, Demo(), {}, 200, body + "}");
  REQUIRE(refused.error);
  CHECK(refused.error->code == "context_length_exceeded");
  CHECK(refused.error->param == "input");
  PreparedRequest cut;
  cut.Read(kResponsesApi, Demo(), {}, 200, body + R"(,"truncation":"auto"})");
  REQUIRE_FALSE(cut.error);
  const size_t n = cut.prompts[0].generate.prompt.size();
  CHECK(n <= 190);
  CHECK(n > 160);  // one message more would not fit
  CHECK_THAT(PromptOf(cut), Catch::Contains("number 39"));
  CHECK_THAT(PromptOf(cut), !Catch::Contains("number 0 "));
  // Parts of messages that went are not in the prompt, whatever form its template takes.
  PreparedRequest parts;
  parts.Read(kResponsesApi, Demo(), {}, 200,
             absl::StrCat(R"({"max_output_tokens":10,"truncation":"auto","input":[{"role":"user",)",
                          R"("content":[{"type":"input_text","text":"a"},{"type":"input_text",)",
                          R"("text":"b"}]},)", items, "]}"));
  REQUIRE_FALSE(parts.error);
  CHECK_THAT(PromptOf(parts), Catch::Contains("number 39"));
  CHECK_THAT(PromptOf(parts), !Catch::Contains("a\nb"));
  // The conversation stays whole for later responses.
  CHECK_THAT(cut.request.response.conversation, Catch::Contains("number 0 "));
  // A prompt that would fit and takes too long is not called too long.
  const auto slow = LoadDemo();
  slow->text_limit = absl::Milliseconds(300);
  slow->chat_template = *ChatTemplate::FromSource(
      "{% if messages|length < 40 %}{% for a in range(90000) %}{% for b in range(90000) %}"
      "{% endfor %}{% endfor %}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}",
      "");
  PreparedRequest late;
  late.Read(kResponsesApi, *slow, {}, 200, body + R"(,"truncation":"auto"})");
  REQUIRE(late.error);
  CHECK(late.error->code == kPromptTooSlow);
  CHECK(late.error->param == "input");
}

}  // namespace
}  // namespace baton
