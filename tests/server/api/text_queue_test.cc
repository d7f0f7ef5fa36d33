// Text work of several clients through the HTTP front: whose turn it is, and what is refused.
#include <catch2/catch.hpp>

#include "tests/server/api/busy_text_thread.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

std::string Ducks(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "ducks ";
  return text;
}

std::string Body(size_t bytes) {
  return absl::StrCat(R"({"max_tokens":2,"prompt":")", Ducks(bytes), R"("})");
}

std::string Chat(const std::string& text) {
  return absl::StrCat(R"({"max_tokens":2,"messages":[{"role":"user","content":")", text, R"("}]})");
}

}  // namespace

TEST_CASE("the small prompt of one key waits for one large prompt of another") {
  Served served;
  BusyTextThread busy(&served);
  std::vector<std::unique_ptr<RawClient>> clients;
  const auto send = [&](const std::string& body, const std::string& key) {
    clients.push_back(std::make_unique<RawClient>(served.port));
    REQUIRE(clients.back()->Send(Post("/v1/completions", body, key)));
    REQUIRE(busy.WaitForJobs(clients.size()));
  };
  for (int i = 0; i < 20; ++i) send(Body(8000), "Authorization: Bearer many\r\n");
  send(Body(5000), "Authorization: Bearer few\r\n");
  send(Body(6000), "X-Api-Key: few\r\n");
  CHECK(served.Metrics().find("stage=\"text\"} 22") != std::string::npos);
  busy.Release();
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 22; }));
  for (const auto& client : clients) CHECK(client->ReadUntil("HTTP/1.1 200"));
  const auto prompt = [&](size_t i) {
    return served.On([&] { return served.generator->submitted[i].prompt.size(); });
  };
  const size_t large = prompt(0);
  CHECK(prompt(1) < large);
  CHECK(prompt(2) < large);
  CHECK(prompt(1) < prompt(2));
  CHECK(prompt(3) == large);
}

TEST_CASE("prompts beyond the queue's bytes get 429 in their API's shape") {
  ApiFrontOptions options;
  options.text_queue = 10'000;
  Served served({}, options);
  BusyTextThread busy(&served);
  RawClient first(served.port), openai(served.port), anthropic(served.port), small(served.port);
  REQUIRE(first.Send(Post("/v1/completions", Body(8000))));
  REQUIRE(busy.WaitForJobs(1));
  REQUIRE(openai.Send(Post("/v1/completions", Body(5000), "Authorization: Bearer b\r\n")));
  CHECK(openai.ReadUntil(R"("code":"server_overloaded")"));
  CHECK(openai.received.find("HTTP/1.1 429") == 0);
  CHECK(openai.received.find("Retry-After: 1") != std::string::npos);
  REQUIRE(anthropic.Send(Post("/v1/messages", Chat(Ducks(5000)))));
  CHECK(anthropic.ReadUntil(R"("type":"rate_limit_error")"));
  CHECK(anthropic.received.find("HTTP/1.1 429") == 0);
  REQUIRE(small.Send(Post("/v1/completions", Body(100))));  // is no work for the pool
  CHECK(small.ReadUntil("HTTP/1.1 200"));
  busy.Release();
  CHECK(first.ReadUntil("HTTP/1.1 200"));
}

TEST_CASE("a template that takes too long costs its own request a 400") {
  Served served;
  served.model->text_limit = absl::Milliseconds(50);
  served.model->chat_template = *ChatTemplate::FromSource(
      "{% if messages|length > 1 %}{% for a in range(90000) %}{% for b in range(90000) %}"
      "{% endfor %}{% endfor %}{% endif %}{{ messages[0].content }}",
      "");
  const std::string slow =
      R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})";
  for (const char* path : {"/v1/chat/completions", "/apply-template"}) {
    INFO(path);
    RawClient client(served.port);
    const absl::Time begin = absl::Now();
    REQUIRE(client.Send(Post(path, slow)));
    REQUIRE(client.ReadUntil(R"("code":"prompt_too_slow")"));
    CHECK(absl::Now() - begin < absl::Seconds(10));  // the loop's turns would take minutes
    CHECK(client.received.find("HTTP/1.1 400") == 0);
    CHECK(client.received.find(R"("param":"messages")") != std::string::npos);
    CHECK(client.received.find("server.text_deadline") != std::string::npos);
  }
  RawClient next(served.port);
  REQUIRE(next.Send(Post("/v1/chat/completions", Chat("c"))));
  CHECK(next.ReadUntil("HTTP/1.1 200"));
}

TEST_CASE("a text that takes too long to tokenize is a 400") {
  Served served;
  served.model->text_limit = absl::Nanoseconds(1);
  RawClient client(served.port);
  REQUIRE(client.Send(Post("/v1/completions", Body(6000))));
  CHECK(client.ReadUntil(R"("code":"prompt_too_slow")"));
  CHECK(client.received.find(R"("param":"prompt")") != std::string::npos);
  RawClient ids(served.port);  // have no text
  REQUIRE(ids.Send(Post("/v1/completions", R"({"prompt":[5],"max_tokens":2})")));
  CHECK(ids.ReadUntil("HTTP/1.1 200"));
}

}  // namespace baton
