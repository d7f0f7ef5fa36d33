// Stored answers through the front: responses that are gone on with, asked for, cancelled and
// removed, and chat completions that were to be stored.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

struct Told {
  int status = 0;
  json::value body;
};

Told Ask(const Served& served, const std::string& method, const std::string& path,
         const std::string& body = "") {
  RawClient client(served.port);
  REQUIRE(client.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: a\r\n",
                                   "Connection: close\r\nContent-Type: application/json\r\n",
                                   "Content-Length: ", body.size(), "\r\n\r\n", body)));
  REQUIRE(client.ReadToEnd());
  const std::string& answer = client.received;
  INFO(answer);
  const size_t head = answer.find("\r\n\r\n");
  REQUIRE(head != std::string::npos);
  return {std::stoi(answer.substr(9, 3)), json::parse(answer.substr(head + 4))};
}

std::string Text(const json::value& value) { return std::string(value.as_string()); }
std::string IdOf(const Told& told) { return Text(told.body.at("id")); }

void CheckError(const Told& told, int status, const char* param) {
  INFO(json::serialize(told.body));
  CHECK(told.status == status);
  CHECK(told.body.at("error").at("param") == param);
}

const char* const kFirst =
    R"({"input":"hi","instructions":"Be brief.","max_output_tokens":3,"metadata":{"k":"v"}})";

std::string Next(const std::string& id, const std::string& more = "") {
  return absl::StrCat(R"({"input":[{"role":"user","content":"more"}],"instructions":"Be brief.",)",
                      R"("max_output_tokens":3,"previous_response_id":")", id, "\"", more, "}");
}

TEST_CASE("a response is gone on with, asked for and removed") {
  Served served;
  const Told first = Ask(served, "POST", "/v1/responses", kFirst);
  REQUIRE(first.status == 200);
  CHECK(first.body.at("status") == "incomplete");
  const std::string path = "/v1/responses/" + IdOf(first);
  CHECK(Ask(served, "GET", path).body == first.body);
  CHECK(Ask(served, "GET", path + "?include[]=reasoning.encrypted_content&stream=false").status ==
        200);
  CheckError(Ask(served, "GET", path + "?stream=true"), 400, "stream");

  const Told second = Ask(served, "POST", "/v1/responses", Next(IdOf(first)));
  REQUIRE(second.status == 200);
  CHECK(Text(second.body.at("previous_response_id")) == IdOf(first));
  const Told third = Ask(served, "POST", "/v1/responses", Next(IdOf(second)));
  REQUIRE(third.status == 200);
  served.On([&] {
    const auto& asked = served.generator->submitted;
    REQUIRE(asked.size() == 3);
    for (size_t i = 1; i < asked.size(); ++i) {
      REQUIRE(asked[i].prompt.size() > asked[i - 1].prompt.size());
      CHECK(std::equal(asked[i - 1].prompt.begin(), asked[i - 1].prompt.end(),
                       asked[i].prompt.begin()));
    }
  });
  const Told items = Ask(served, "GET", path + "/input_items");
  REQUIRE(items.status == 200);
  REQUIRE(items.body.at("data").as_array().size() == 1);
  const json::value& item = items.body.at("data").at(0);
  CHECK(item.at("type") == "message");
  CHECK(item.at("content").at(0).at("text") == "hi");
  CHECK(items.body.at("first_id") == item.at("id"));
  CHECK(items.body.at("has_more") == false);

  const Told several = Ask(served, "POST", "/v1/responses",
                           R"({"max_output_tokens":1,"input":[{"role":"user","content":"a"},)"
                           R"({"type":"function_call","id":"fc_7","call_id":"c","name":"f",)"
                           R"("arguments":"{}"},{"type":"function_call_output","call_id":"c",)"
                           R"("output":"r"},{"role":"assistant","content":"b"}]})");
  const std::string listed = "/v1/responses/" + IdOf(several) + "/input_items";
  const json::value last = Ask(served, "GET", listed + "?limit=1").body;
  CHECK(last.at("has_more") == true);
  CHECK(json::serialize(last.at("data").at(0).at("content")) ==
        R"([{"type":"output_text","text":"b","annotations":[]}])");
  const json::value page = Ask(served, "GET", listed + "?order=asc&limit=2&after=fc_7").body;
  REQUIRE(page.at("data").as_array().size() == 2);
  CHECK(page.at("data").at(0).at("type") == "function_call_output");
  CHECK(page.at("data").at(0).at("status") == "completed");
  CHECK(page.at("data").at(1) == last.at("data").at(0));
  CHECK(page.at("has_more") == false);

  const Told removed = Ask(served, "DELETE", path);
  CHECK(json::serialize(removed.body) ==
        absl::StrCat(R"({"id":")", IdOf(first), R"(","object":"response","deleted":true})"));
  CheckError(Ask(served, "GET", path), 404, "response_id");
  CheckError(Ask(served, "DELETE", path), 404, "response_id");
  CheckError(Ask(served, "GET", path + "/input_items"), 404, "response_id");
  CheckError(Ask(served, "POST", path + "/cancel"), 404, "response_id");
  const Told gone = Ask(served, "POST", "/v1/responses", Next(IdOf(first)));
  CheckError(gone, 404, "previous_response_id");
  CHECK(gone.body.at("error").at("code") == "previous_response_not_found");
  // The conversation of the later ones does not need it.
  CHECK(Ask(served, "POST", "/v1/responses", Next(IdOf(third))).status == 200);
}

TEST_CASE("an unknown id of any length is cut in the error that shows it") {
  Served served;
  const std::string id(1000, 'a');
  for (const std::string path : {"/v1/responses/", "/v1/chat/completions/", "/v1/models/"}) {
    const Told told = Ask(served, "GET", path + id);
    CHECK(told.status == 404);
    const std::string message = Text(told.body.at("error").at("message"));
    CHECK_THAT(message, Catch::Contains(id.substr(0, 50)));
    CHECK(message.size() < 200);
  }
}

// Arguments are a text to clients, and JSON inside the messages to templates.
TEST_CASE("arguments of the largest depth are taken, stored and told again") {
  Served served;
  const auto nested = [](int depth) {
    std::string text = "1";
    for (int i = 0; i < depth; ++i) text = absl::StrCat("{\"a\":", text, "}");
    return text;
  };
  const auto call = [&nested](int depth) {
    return json::serialize(json::object{{"name", "f"}, {"arguments", nested(depth)}});
  };
  const Told chat =
      Ask(served, "POST", "/v1/chat/completions",
          absl::StrCat(R"({"store":true,"max_tokens":1,"messages":[{"role":"user","content":"a"},)",
                       R"({"role":"assistant","tool_calls":[{"id":"c","function":)", call(63),
                       R"(}]},{"role":"user","content":"b"}]})"));
  INFO(json::serialize(chat.body));
  REQUIRE(chat.status == 200);
  const Told messages = Ask(served, "GET", "/v1/chat/completions/" + IdOf(chat) + "/messages");
  REQUIRE(messages.status == 200);
  CHECK(
      Text(messages.body.at("data").at(1).at("tool_calls").at(0).at("function").at("arguments")) ==
      nested(63));
  CheckError(Ask(served, "POST", "/v1/chat/completions",
                 absl::StrCat(R"({"messages":[{"role":"assistant","tool_calls":[{"id":"c",)",
                              R"("function":)", call(65), "}]}]}")),
             400, "messages[0].tool_calls[0].function.arguments");
  const auto respond = [&](int depth) {
    json::object item{{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}};
    item["arguments"] = nested(depth);
    return Ask(served, "POST", "/v1/responses",
               absl::StrCat(R"({"max_output_tokens":1,"input":[)", json::serialize(item), "]}"));
  };
  CheckError(respond(65), 400, "input[0].arguments");
  const Told response = respond(63);
  REQUIRE(response.status == 200);
  CHECK(Ask(served, "GET", "/v1/responses/" + IdOf(response) + "/input_items").status == 200);
  CHECK(Ask(served, "POST", "/v1/responses", Next(IdOf(response))).status == 200);
}

TEST_CASE("too many tokens are refused at the field that the client sent") {
  Served served;
  const auto check = [&served](const char* path, const char* body, const std::string& field) {
    const Told told =
        Ask(served, "POST", path, absl::StrCat("{", body, ",\"", field, "\":2000000000}"));
    CheckError(told, 400, field.c_str());
    CHECK_THAT(Text(told.body.at("error").at("message")), Catch::Contains("(" + field + ")"));
  };
  const char* const kMessages = R"("messages":[{"role":"user","content":"a"}])";
  check("/v1/chat/completions", kMessages, "max_tokens");
  check("/v1/chat/completions", kMessages, "max_completion_tokens");
  check("/v1/completions", R"("prompt":"a")", "n_predict");
  check("/v1/responses", R"("input":"a")", "max_output_tokens");
}

TEST_CASE("what is not stored, or was driven out, is unknown") {
  ApiFrontOptions options;
  options.answers.max_answers = 1;
  Served served({}, options);
  const Told first = Ask(served, "POST", "/v1/responses", kFirst);
  const Told unstored =
      Ask(served, "POST", "/v1/responses", Next(IdOf(first), R"(,"store":false)"));
  REQUIRE(unstored.status == 200);
  CHECK(unstored.body.at("store") == false);
  CheckError(Ask(served, "GET", "/v1/responses/" + IdOf(unstored)), 404, "response_id");
  CHECK(Ask(served, "GET", "/v1/responses/" + IdOf(first)).status == 200);
  REQUIRE(Ask(served, "POST", "/v1/responses", kFirst).status == 200);
  CheckError(Ask(served, "GET", "/v1/responses/" + IdOf(first)), 404, "response_id");
  CheckError(Ask(served, "POST", "/v1/responses", Next(IdOf(first), R"(,"stream":true)")), 404,
             "previous_response_id");
  // A long conversation is put together on the text pool.
  const Told long_one =
      Ask(served, "POST", "/v1/responses",
          absl::StrCat(R"({"max_output_tokens":2,"input":")", std::string(3000, 'a'), "\"}"));
  REQUIRE(long_one.status == 200);
  CHECK(Ask(served, "POST", "/v1/responses", Next(IdOf(long_one))).status == 200);
}

// The id of the one response that is stored.
std::string StoredId(Served& served) {
  return served.On([&] {
    const auto all = served.front->answers().store().All(StoredKind::kResponse, "");
    return all.size() == 1 ? all[0]->id : std::string();
  });
}

void Step(Served& served) {
  served.On([&] {
    served.generator->StepAll();
    return 0;
  });
}

TEST_CASE("a running response is cancelled by its id, and its client gets what there is") {
  Served served;
  served.generator->hold = true;
  const bool stream = GENERATE(true, false);
  RawClient client(served.port);
  REQUIRE(client.Send(Post(
      "/v1/responses", absl::StrCat(R"({"input":"hi","stream":)", stream ? "true" : "false", "}"),
      "Connection: close\r\n")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 1; }));
  Step(served);
  Step(served);
  const std::string id = StoredId(served);
  REQUIRE(id.starts_with("resp_"));
  const std::string path = "/v1/responses/" + id;
  CHECK(Ask(served, "GET", path).body.at("status") == "in_progress");
  CheckError(Ask(served, "POST", "/v1/responses", Next(id)), 400, "previous_response_id");
  const Told cancelled = Ask(served, "POST", path + "/cancel");
  CHECK(cancelled.status == 200);
  CHECK(cancelled.body.at("status") == "cancelled");
  REQUIRE(client.ReadToEnd());
  INFO(client.received);
  CHECK(client.received.find("HTTP/1.1 200") == 0);
  CHECK(client.received.find(R"("status":"cancelled")") != std::string::npos);
  CHECK((client.received.find("event: response.incomplete") != std::string::npos) == stream);
  CHECK(served.generator->n_cancelled == 1);
  const Told again = Ask(served, "POST", path + "/cancel");
  CHECK(again.status == 200);
  CHECK(again.body.at("status") == "cancelled");
  CHECK(again.body.at("usage").at("output_tokens") == 2);
  served.generator->hold = false;
  CHECK(Ask(served, "POST", "/v1/responses", Next(id)).status == 200);
}

TEST_CASE("one that has ended is not cancelled; one whose client left or that failed is kept so") {
  Served served;
  const Told whole = Ask(served, "POST", "/v1/responses", kFirst);
  CheckError(Ask(served, "POST", "/v1/responses/" + IdOf(whole) + "/cancel"), 400, "response_id");
  REQUIRE(Ask(served, "DELETE", "/v1/responses/" + IdOf(whole)).status == 200);
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/responses", R"({"input":"hi","stream":true})")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 2; }));
  Step(served);
  const std::string id = StoredId(served);
  SECTION("the client goes away") {
    client.Close();
    REQUIRE(served.WaitFor([&] { return served.generator->n_cancelled == 1; }));
    CHECK(Ask(served, "GET", "/v1/responses/" + id).body.at("status") == "cancelled");
  }
  SECTION("the cluster fails") {
    served.On([&] {
      served.generator->FailAll(absl::AbortedError("lost"));
      return 0;
    });
    REQUIRE(client.ReadUntil("event: response.failed"));
    const Told failed = Ask(served, "GET", "/v1/responses/" + id);
    CHECK(failed.body.at("status") == "failed");
    CHECK(failed.body.at("error").at("message") == "lost");
  }
  SECTION("it is removed while it runs") {
    CHECK(Ask(served, "DELETE", "/v1/responses/" + id).status == 200);
    client.Close();
    REQUIRE(served.WaitFor([&] { return served.generator->View().running == 0; }));
    CheckError(Ask(served, "GET", "/v1/responses/" + id), 404, "response_id");
  }
  SECTION("it is cancelled, and removed before its end") {
    served.On([&] {
      AnswerDesk& answers = served.front->answers();
      CHECK(answers.Cancel("", id, [] {}));
      CHECK(answers.Erase(StoredKind::kResponse, "", id));
    });
    REQUIRE(client.ReadUntil("event: response.incomplete"));
    CheckError(Ask(served, "GET", "/v1/responses/" + id), 404, "response_id");
  }
}

std::string Chat(const std::string& more) {
  return absl::StrCat(
      R"({"max_tokens":3,"messages":[{"role":"system","content":"s"},{"role":"assistant",)",
      R"("tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":)",
      R"("{\"k\":1}"}}]},{"role":"user","content":"hi"}])", more, "}");
}

TEST_CASE("stored chat completions have ids of their own, whatever id their request has") {
  Served served;
  for (int i = 0; i < 2; ++i) {
    RawClient client(served.port);
    REQUIRE(client.Send(Post("/v1/chat/completions", Chat(R"(,"store":true)"),
                             "X-Request-Id: mine\r\nConnection: close\r\n")));
    REQUIRE(client.ReadToEnd());
    CHECK(client.received.find("X-Request-Id: mine") != std::string::npos);
  }
  CHECK(Ask(served, "GET", "/v1/chat/completions").body.at("data").as_array().size() == 2);
}

TEST_CASE("chat completions that failed, or whose client has gone, are not stored") {
  const bool fails = GENERATE(true, false);
  const bool stream = GENERATE(true, false);
  CAPTURE(fails, stream);
  Served served;
  served.generator->hold = true;
  const std::string path = "/v1/chat/completions";
  RawClient client(served.port);
  REQUIRE(
      client.Send(Post(path, Chat(stream ? R"(,"store":true,"stream":true)" : R"(,"store":true)"),
                       "Connection: close\r\n")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted > 0; }));
  served.On([&] {
    served.generator->StepAll();
    if (fails) served.generator->FailAll(absl::AbortedError("lost"));
    return 0;
  });
  if (fails)
    REQUIRE(client.ReadToEnd());
  else
    client.Close();
  const char* const code = fails ? "code=\"5" : "code=\"499\"";
  CHECK(served.WaitForMetrics(code));
  CHECK(Ask(served, "GET", path).body.at("data").as_array().empty());
}

TEST_CASE("metadata of the largest size is taken, however it is escaped") {
  Served served;
  const std::string path = "/v1/chat/completions";
  const std::string one = path + "/" + IdOf(Ask(served, "POST", path, Chat(R"(,"store":true)")));
  std::string text;
  for (int i = 0; i < 512; ++i) text += R"(\ud83d\ude00)";
  std::string pairs;
  for (int i = 0; i < 16; ++i)
    absl::StrAppend(&pairs, i == 0 ? "" : ",", "\"k", i, "\":\"", text, "\"");
  const Told changed = Ask(served, "POST", one, absl::StrCat(R"({"metadata":{)", pairs, "}}"));
  REQUIRE(changed.status == 200);
  CHECK(changed.body.at("metadata").as_object().size() == 16);
  CHECK(Ask(served, "POST", one, std::string(129 << 10, ' ')).status == 413);
}

TEST_CASE("chat completions that are to be stored are kept whole, streamed or not") {
  Served served;
  const std::string path = "/v1/chat/completions";
  REQUIRE(Ask(served, "POST", path, Chat("")).status == 200);
  CHECK(Ask(served, "GET", path).body.at("data").as_array().empty());
  const Told first =
      Ask(served, "POST", path, Chat(R"(,"store":true,"metadata":{"of":"me","n":"1"})"));
  REQUIRE(first.status == 200);
  RawClient client(served.port);
  REQUIRE(
      client.Send(Post(path, Chat(R"(,"store":true,"stream":true,"n":2,"metadata":{"n":"2"})"))));
  REQUIRE(client.ReadUntil("[DONE]"));
  const std::string one = path + "/" + IdOf(first);

  json::object stored = Ask(served, "GET", one).body.as_object();
  CHECK(stored.at("metadata") == json::parse(R"({"of":"me","n":"1"})"));
  stored.erase("metadata");
  CHECK(json::value(stored) == first.body);
  const Told list = Ask(served, "GET", path);
  REQUIRE(list.body.at("data").as_array().size() == 2);
  const json::value& streamed = list.body.at("data").at(1);
  CHECK(streamed.at("object") == "chat.completion");
  REQUIRE(streamed.at("choices").as_array().size() == 2);
  CHECK(streamed.at("choices").at(0).at("message") == first.body.at("choices").at(0).at("message"));
  CHECK(streamed.at("usage").at("completion_tokens") == 6);

  const auto ids = [&](const std::string& query) {
    std::vector<std::string> told;
    const Told page = Ask(served, "GET", path + query);
    for (const json::value& chat : page.body.at("data").as_array())
      told.push_back(Text(chat.at("id")));
    return told;
  };
  const std::string a = IdOf(first), b = Text(streamed.at("id"));
  using Ids = std::vector<std::string>;
  CHECK(ids("?order=desc") == Ids{b, a});
  CHECK(ids("?limit=1") == Ids{a});
  CHECK(ids("?limit=1&after=" + a) == Ids{b});
  CHECK(ids("?metadata[n]=2") == Ids{b});
  CHECK(ids("?metadata%5Bof%5D=me&model=demo") == Ids{a});
  CHECK(ids("?metadata[other]=2").empty());
  CHECK(ids("?model=other").empty());
  CHECK(Ask(served, "GET", path + "?limit=1").body.at("has_more") == true);
  CheckError(Ask(served, "GET", path + "?limit=101"), 400, "limit");
  CheckError(Ask(served, "GET", path + "?order=up"), 400, "order");
  CheckError(Ask(served, "GET", path + "?after=none"), 400, "after");

  const Told messages = Ask(served, "GET", one + "/messages");
  REQUIRE(messages.body.at("data").as_array().size() == 3);
  CHECK(messages.body.at("data").at(2).at("content") == "hi");
  CHECK(Text(messages.body.at("data").at(2).at("id")) == a + "-2");
  CHECK(messages.body.at("data").at(1).at("tool_calls").at(0).at("function").at("arguments") ==
        R"({"k":1})");

  const Told changed = Ask(served, "POST", one, R"({"metadata":{"n":"3"}})");
  CHECK(changed.body.at("metadata") == json::parse(R"({"n":"3"})"));
  CHECK(ids("?metadata[n]=3") == Ids{a});
  CHECK(ids("") == Ids{a, b});
  CheckError(Ask(served, "POST", one, "{}"), 400, "metadata");
  CheckError(Ask(served, "POST", one, R"({"metadata":{"n":3}})"), 400, "metadata.n");

  CHECK(Ask(served, "DELETE", one).body.at("object") == "chat.completion.deleted");
  CheckError(Ask(served, "GET", one), 404, "completion_id");
  CheckError(Ask(served, "POST", one, R"({"metadata":{}})"), 404, "completion_id");
  CheckError(Ask(served, "DELETE", one), 404, "completion_id");
  // A chat is no response.
  CheckError(Ask(served, "GET", "/v1/responses/" + b), 404, "response_id");
  CheckError(Ask(served, "POST", "/v1/responses", Next(b)), 404, "previous_response_id");
}

}  // namespace
}  // namespace baton
