// Texts that take long to write leave the front thread: who waits for them, what comes after them,
// and what becomes of them when a client goes.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/server/api/asked_answer.h"
#include "tests/server/api/busy_text_thread.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

constexpr size_t kPromptTokens = 3000;

// A prompt whose list is long, as ids or (of a chat, which has a few tokens more) as text. more:
// fields.
std::string LongList(bool is_chat, const std::string& more) {
  const std::string ids = absl::StrJoin(std::vector<int>(kPromptTokens, 5), ",");
  const std::string text = absl::StrJoin(std::vector<int>(kPromptTokens, 5), "");
  return absl::StrCat("{", is_chat ? R"("messages":[{"role":"user","content":")" : R"("prompt":[)",
                      is_chat ? text : ids, is_chat ? R"("}])" : "]",
                      R"(,"max_tokens":3,"prompt_logprobs":1,)", more, "}");
}

// A server whose cluster computes when it is told to, and a client that has asked for a long list,
// or with a body of its own.
struct Asked {
  explicit Asked(const std::string& more, const std::string& path = "/v1/completions")
      : Asked(path, [&] { return LongList(path == "/v1/chat/completions", more); }) {}
  Asked(const std::string& path, const std::function<std::string()>& body) : client(served.port) {
    served.generator->hold = true;
    REQUIRE(client.Send(Post(path, body())));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted > 0; }));
  }
  // Has each choice get its three tokens, and its end with the last one.
  void Compute() {
    for (int i = 0; i < 3; ++i) {
      served.On([&] {
        served.generator->StepAll();
        return 0;
      });
    }
  }
  bool SmallOneIsAnswered() {
    served.generator->hold = false;
    RawClient other(served.port);
    return other.Send(Post("/v1/completions", R"({"prompt":[5],"max_tokens":1})")) &&
           other.ReadUntil("HTTP/1.1 200");
  }
  Served served;
  RawClient client;
};

// The events of an answer that came in chunks.
std::vector<std::string> EventsIn(const std::string& received) {
  std::vector<std::string> events;
  for (const auto line : absl::StrSplit(received, '\n'))
    if (absl::StartsWith(line, "data: ")) events.emplace_back(line.substr(6));
  return events;
}

}  // namespace

TEST_CASE("a long list of the prompt is written by the text thread, before the tokens after it") {
  Asked asked(R"("stream":true,"stream_options":{"include_usage":true})");
  BusyTextThread busy(&asked.served);
  asked.Compute();
  REQUIRE(busy.WaitForJobs(1));
  CHECK(asked.SmallOneIsAnswered());  // the front goes on meanwhile
  CHECK(asked.client.received.empty());
  busy.Release();
  REQUIRE(asked.client.ReadUntil("[DONE]"));
  const std::vector<std::string> events = EventsIn(asked.client.received);
  REQUIRE(events.size() == 7);  // the list, three tokens, the end, the usage, [DONE]
  const json::value first = json::parse(events[0]).at("choices").at(0);
  CHECK(first.at("text") == "");
  REQUIRE(first.at("prompt_logprobs").as_array().size() == kPromptTokens);
  CHECK(first.at("prompt_logprobs").at(1).at("5").at("logprob") == -2.0);
  for (size_t i = 1; i < 5; ++i)
    CHECK_FALSE(json::parse(events[i]).at("choices").at(0).as_object().contains("prompt_logprobs"));
  CHECK(json::parse(events[4]).at("choices").at(0).at("finish_reason") == "length");
  CHECK(json::parse(events[5]).at("usage").at("completion_tokens") == 3);
}

TEST_CASE("each choice has the lists of the prompt, and of its echo, in its first event") {
  Asked asked(R"("stream":true,"n":2,"echo":true,"logprobs":0)");
  BusyTextThread busy(&asked.served);
  asked.Compute();
  REQUIRE(busy.WaitForJobs(1));
  busy.Release();
  REQUIRE(asked.client.ReadUntil("[DONE]"));
  std::vector<int> n_events(2), n_ends(2);
  for (const std::string& event : EventsIn(asked.client.received)) {
    if (event == "[DONE]") continue;
    const json::value choice = json::parse(event).at("choices").at(0);
    const auto index = static_cast<size_t>(choice.at("index").as_int64());
    n_ends[index] += !choice.at("finish_reason").is_null();
    CHECK(choice.as_object().contains("prompt_logprobs") == (n_events[index] == 0));
    if (n_events[index]++ > 0) continue;
    CHECK(choice.at("prompt_logprobs").as_array().size() == kPromptTokens);
    const json::array& echo = choice.at("logprobs").at("token_logprobs").as_array();
    REQUIRE(echo.size() == kPromptTokens);
    CHECK(echo[0].is_null());
    CHECK(echo[kPromptTokens - 1] == -2.0);
  }
  CHECK(n_events[0] == n_events[1]);
  CHECK(n_ends == std::vector<int>{1, 1});
}

TEST_CASE("a whole answer that is long is written by the text thread") {
  Asked asked(R"("stream":false)");
  BusyTextThread busy(&asked.served);
  asked.Compute();
  REQUIRE(busy.WaitForJobs(1));
  CHECK(asked.SmallOneIsAnswered());
  CHECK(asked.client.received.empty());
  busy.Release();
  REQUIRE(asked.client.ReadUntil("\"usage\""));
  CHECK(asked.client.received.find("HTTP/1.1 200") == 0);
}

TEST_CASE("what a stream stores is written by the text thread, and can be asked for") {
  Asked asked(R"("stream":true,"store":true)", "/v1/chat/completions");
  BusyTextThread busy(&asked.served);
  asked.Compute();
  REQUIRE(busy.WaitForJobs(1));
  busy.Release();
  REQUIRE(asked.client.ReadUntil("[DONE]"));
  const json::value first = json::parse(EventsIn(asked.client.received).front());
  CHECK(first.at("prompt_logprobs").as_array().size() > kPromptTokens);
  const std::string id(first.at("id").as_string());
  const auto stored = asked.served.Client().Get("/v1/chat/completions/" + id);
  REQUIRE(stored.ok());
  CHECK(stored->status == 200);
  CHECK(json::parse(stored->body).at("prompt_logprobs") == first.at("prompt_logprobs"));
}

TEST_CASE("what a response tells of its request is written by the text thread, before its tokens") {
  const bool stream = GENERATE(false, true);
  CAPTURE(stream);
  const json::object schema = {{"type", "object"}, {"description", std::string(60'000, 'x')}};
  Asked asked("/v1/responses", [&] {
    return json::serialize(json::object{
        {"input", "hi"},
        {"max_output_tokens", 3},
        {"stream", stream},
        {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}}}}}});
  });
  BusyTextThread busy(&asked.served);
  asked.Compute();
  REQUIRE(busy.WaitForJobs(1));
  CHECK(asked.SmallOneIsAnswered());
  CHECK(asked.client.received.empty());
  busy.Release();
  REQUIRE(asked.client.ReadUntil("\"total_tokens\""));
  REQUIRE(asked.client.ReadUntil(stream ? "\n0\r\n" : "}"));
  const std::vector<std::string> events = EventsIn(asked.client.received);
  REQUIRE((stream ? events.size() > 4 : events.empty()));
  for (size_t i = 0; i < events.size(); ++i) {
    const json::value event = json::parse(events[i]);
    CHECK(event.at("sequence_number") == i);
    const bool is_whole = i < 2 || i + 1 == events.size();
    REQUIRE(event.as_object().contains("response") == is_whole);
    if (!is_whole) continue;
    CHECK(event.at("response").at("text").at("format").at("schema") == schema);
    CHECK(event.at("response").at("status") == (i < 2 ? "in_progress" : "incomplete"));
    if (i < 2) CHECK(event.at("type") == (i == 0 ? "response.created" : "response.in_progress"));
  }
}

TEST_CASE("a client that goes away leaves neither its list nor its request behind") {
  const bool stream = GENERATE(false, true);
  CAPTURE(stream);
  Asked asked(absl::StrCat(R"("stream":)", stream ? "true" : "false"));
  BusyTextThread busy(&asked.served);
  asked.Compute();
  REQUIRE(busy.WaitForJobs(1));
  asked.client.Close();
  REQUIRE(asked.served.WaitFor([&] { return asked.served.server->n_connections() == 0; }));
  // A list that waits for the thread is not written any more; the end of a whole answer is.
  if (stream) CHECK(busy.WaitForJobs(0));
  busy.Release();
  const std::string gone = absl::StrCat(
      R"(code="499",endpoint="completions",model="demo",outcome="canceled",role="router",stream=")",
      stream ? "true" : "false", "\"} 1\n");
  CHECK(asked.served.WaitForMetrics(gone));
  CHECK(asked.SmallOneIsAnswered());
}

TEST_CASE("what the front has told for all choices, no later choice tells with the pool") {
  Asked asked(R"("stream":true,"n":8,"echo":true,"return_token_ids":true)");
  {
    BusyTextThread busy(&asked.served);
    for (uint64_t n = 1; asked.served.pool->TryRun({.address = n}, 0, [] {}) != 0; ++n) {
    }
    asked.served.On([&] {
      asked.served.generator->StepNth(0);
      return 0;
    });
    REQUIRE(asked.client.ReadUntil("prompt_logprobs"));
  }
  REQUIRE(asked.served.WaitFor([&] { return asked.served.pool->load().jobs == 0; }));
  asked.Compute();
  REQUIRE(asked.client.ReadUntil("[DONE]"));
  std::vector<int> n_lists(8), n_ends(8);
  for (const std::string& event : EventsIn(asked.client.received)) {
    if (event == "[DONE]") continue;
    const json::value choice = json::parse(event).at("choices").at(0);
    const auto index = static_cast<size_t>(choice.at("index").as_int64());
    n_lists[index] += choice.as_object().contains("prompt_logprobs");
    n_ends[index] += !choice.at("finish_reason").is_null();
  }
  CHECK(n_lists == std::vector<int>(8, 1));
  CHECK(n_ends == std::vector<int>(8, 1));
}

TEST_CASE("without room for a text the front writes it itself") {
  Asked asked(R"("stream":true)");
  BusyTextThread busy(&asked.served);
  uint64_t n_jobs = 0;
  while (asked.served.pool->TryRun({.address = ++n_jobs}, 0, [] {}) != 0) {
  }
  CHECK(n_jobs == 65);
  asked.Compute();
  REQUIRE(asked.client.ReadUntil("[DONE]"));
  CHECK(EventsIn(asked.client.received).size() == 6);
}

}  // namespace baton
