// Ends of long responses that failed, were cancelled or whose client went away: the text thread
// writes them, the front goes on meanwhile, and the store has them afterwards.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "server/api/text_calls.h"
#include "tests/server/api/busy_text_thread.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

// A running response of which each telling is long, and its client. It has a token if it has
// begun.
struct LongResponse {
  explicit LongResponse(bool begins, bool stream = true) : client(served.port) {
    served.generator->hold = true;
    const json::object schema = {{"type", "object"}, {"description", std::string(60'000, 'x')}};
    REQUIRE(client.Send(Post(
        "/v1/responses",
        json::serialize(json::object{
            {"input", "hi"},
            {"stream", stream},
            {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}}}}}}),
        "Connection: close\r\n")));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted > 0; }));
    if (!begins) return;
    served.On([&] {
      served.generator->StepAll();
      return 0;
    });
    REQUIRE(served.WaitFor([&] { return !Stored().empty(); }));
    if (stream) REQUIRE(client.ReadUntil("response.output_text.delta"));
  }
  // Front thread. The body of the one response that is stored; empty: there is none.
  std::string Stored() {
    const auto all = served.front->answers().store().All(StoredKind::kResponse, "");
    return all.size() == 1 ? all[0]->body : std::string();
  }
  std::string Status() {
    const std::string body = served.On([&] { return Stored(); });
    return body.empty() ? "" : std::string(json::parse(body).at("status").as_string());
  }
  std::string Path() {
    const auto id = served.On(
        [&] { return served.front->answers().store().All(StoredKind::kResponse, "").at(0)->id; });
    return "/v1/responses/" + id;
  }
  bool SmallOneIsAnswered() {
    RawClient other(served.port);
    return other.Send(Get("/v1/models")) && other.ReadUntil("HTTP/1.1 200");
  }
  Served served;
  RawClient client;
};

}  // namespace

TEST_CASE("the end of a long response that failed is written by the text thread") {
  const bool stream = GENERATE(true, false);
  CAPTURE(stream);
  LongResponse response(/*begins=*/true, stream);
  BusyTextThread busy(&response.served);
  response.served.On([&] {
    response.served.generator->FailAll(absl::AbortedError("lost"));
    return 0;
  });
  REQUIRE(busy.WaitForJobs(1));
  CHECK(response.SmallOneIsAnswered());
  CHECK(response.client.received.find("lost") == std::string::npos);
  CHECK(response.Status() == "in_progress");
  busy.Release();
  REQUIRE(response.client.ReadToEnd());
  const std::string& told = response.client.received;
  CHECK(told.find("lost") != std::string::npos);
  CHECK((told.find("event: response.failed") != std::string::npos) == stream);
  CHECK((told.find("HTTP/1.1 200") == 0) == stream);
  CHECK(response.Status() == "failed");
}

TEST_CASE("the end of a long response that is cancelled is written by the text thread") {
  const bool stream = GENERATE(true, false);
  CAPTURE(stream);
  LongResponse response(/*begins=*/true, stream);
  const std::string path = response.Path();
  BusyTextThread busy(&response.served);
  std::vector<std::unique_ptr<RawClient>> cancelling;
  for (int i = 0; i < 2; ++i) {
    cancelling.push_back(std::make_unique<RawClient>(response.served.port));
    REQUIRE(cancelling.back()->Send(Post(path + "/cancel", "", "Connection: close\r\n")));
    REQUIRE(busy.WaitForJobs(1));
  }
  CHECK(response.SmallOneIsAnswered());
  for (const auto& client : cancelling) CHECK(client->received.empty());
  CHECK(response.Status() == "in_progress");
  busy.Release();
  for (const auto& client : cancelling) {
    REQUIRE(client->ReadToEnd());
    CHECK(client->received.find("HTTP/1.1 200") == 0);
    CHECK(client->received.find(R"("status":"cancelled")") != std::string::npos);
  }
  REQUIRE(response.client.ReadToEnd());
  CHECK(response.client.received.find(R"("status":"cancelled")") != std::string::npos);
  CHECK(response.Status() == "cancelled");
}

TEST_CASE("a long response that is removed while its cancelled end is written is unknown") {
  LongResponse response(/*begins=*/true);
  const std::string path = response.Path();
  BusyTextThread busy(&response.served);
  RawClient cancelling(response.served.port);
  REQUIRE(cancelling.Send(Post(path + "/cancel", "", "Connection: close\r\n")));
  REQUIRE(busy.WaitForJobs(1));
  RawClient removing(response.served.port);
  REQUIRE(removing.Send("DELETE " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
  REQUIRE(removing.ReadUntil("HTTP/1.1 200"));
  REQUIRE(cancelling.ReadUntil("HTTP/1.1 404"));
  busy.Release();
  REQUIRE(response.client.ReadUntil("event: response.incomplete"));
  CHECK(response.Status().empty());
}

TEST_CASE("a long response whose client goes is stored as cancelled by the text thread") {
  const bool begins = GENERATE(true, false);
  CAPTURE(begins);
  LongResponse response(begins);
  BusyTextThread busy(&response.served);
  response.client.Close();
  REQUIRE(busy.WaitForJobs(1));
  CHECK(response.SmallOneIsAnswered());
  CHECK(response.Status() == (begins ? "in_progress" : ""));
  busy.Release();
  CHECK(response.served.WaitFor(
      [&] { return response.Stored().find(R"("status":"cancelled")") != std::string::npos; }));
  CHECK(response.served.Metrics().find(R"(code="499",endpoint="responses")") != std::string::npos);
}

TEST_CASE(
    "a stream that fails before its first token is refused with a status, and stored as failed") {
  LongResponse response(/*begins=*/false);
  response.served.On([&] {
    response.served.generator->FailAll(absl::AbortedError("lost"));
    return 0;
  });
  REQUIRE(response.client.ReadToEnd());
  CHECK(response.client.received.find("HTTP/1.1 200") == std::string::npos);
  CHECK(response.client.received.find("lost") != std::string::npos);
  CHECK(response.Status() == "failed");
}

TEST_CASE("work that has begun for a call is not finished in place of later work") {
  LoopThread front;
  TextPool pool({.n_threads = 2});
  TextCalls calls(&front.loop, &pool, 0);
  front.Start();
  const TextCalls::Caller caller{.exchange = 7};
  std::promise<void> first_begun, first_goes_on, second_goes_on;
  std::vector<int> finished;  // loop's thread
  const auto run = [&](int number, std::promise<void>* begun, std::promise<void>* goes_on) {
    return front.On([&] {
      return calls.RunOnPool(caller, 0, [&finished, number, begun, goes_on]() -> TextCalls::Finish {
        if (begun != nullptr) begun->set_value();
        goes_on->get_future().wait();
        return [&finished, number] { finished.push_back(number); };
      });
    });
  };
  REQUIRE(run(1, &first_begun, &first_goes_on));
  first_begun.get_future().wait();
  front.On([&] {
    calls.OnGone(caller.exchange);
    return 0;
  });
  REQUIRE(run(2, nullptr, &second_goes_on));
  first_goes_on.set_value();
  // The thread of the first work takes another job only when it has told of the first.
  std::promise<void> told;
  REQUIRE(pool.TryRun({}, 0, [&] { told.set_value(); }) != 0);
  told.get_future().wait();
  CHECK(front.On([&] { return finished.empty(); }));
  second_goes_on.set_value();
  CHECK(front.WaitFor([&] { return finished == std::vector<int>{2}; }));
  front.Stop();
}

}  // namespace baton
