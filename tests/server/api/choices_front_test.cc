// Requests with several choices through the HTTP front: each is a request to the cluster, and none
// is left behind however the client's request ends.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/choice_seed.h"
#include "tests/server/api/asked_answer.h"
#include "tests/server/api/served_api.h"
#include "tests/support/raw_client.h"

namespace baton {
namespace {

namespace json = boost::json;

// The value of a line of /metrics.
std::string Metric(const Served& served, const std::string& name) {
  const std::string text = served.Metrics();
  const size_t at = text.find("\n" + name);
  if (at == std::string::npos) return "";
  const size_t value = text.find("} ", at) + 2;
  return text.substr(value, text.find('\n', value) - value);
}

constexpr const char* kStarted = "baton_requests_started_total{";

// Counts of requests that the cluster took and that ended, for any reason.
void CheckNothingLeft(Served& served, int n_started) {
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
  CHECK(Metric(served, kStarted) == absl::StrCat(n_started));
  int n_ended = 0;
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    n_ended += std::stoi(Metric(
        served, absl::StrCat(R"(baton_requests_ended_total{model="demo",reason=")", reason)));
  }
  CHECK(n_ended == n_started);
}

// "INDEX TEXT FINISH" of each event with a choice.
std::vector<std::string> Pieces(const std::string& received) {
  std::vector<std::string> pieces;
  for (size_t at = received.find("data: {"); at != std::string::npos;
       at = received.find("data: {", at + 1)) {
    const std::string event = received.substr(at + 6, received.find("\n\n", at) - at - 6);
    const json::value parsed = json::parse(event);
    if (parsed.as_object().contains("error")) {
      pieces.push_back("error");
      continue;
    }
    const json::value& choice = parsed.at("choices").at(0);
    pieces.push_back(absl::StrCat(choice.at("index").as_int64(), " ",
                                  std::string(choice.at("text").as_string()),
                                  choice.at("finish_reason").is_null()
                                      ? ""
                                      : " " + std::string(choice.at("finish_reason").as_string())));
  }
  return pieces;
}

const int32_t kA = Ids("a")[0], kB = Ids("b")[0];

TEST_CASE("n choices are n requests to the cluster, streamed as their tokens come") {
  Served served;
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(Post(
      "/v1/completions",
      absl::StrCat(R"({"prompt":[5,)", kA, R"(],"n":3,"max_tokens":2,"seed":11,"stream":true})"))));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 3; }));
  served.On([&] {
    for (size_t i = 0; i < 3; ++i) {
      const GenerateRequest& request = served.generator->submitted[i];
      CHECK(request.prompt == std::vector<int32_t>{5, kA});
      CHECK(request.max_tokens == 2);
      CHECK(request.sampling.seed == ChoiceSeed(11, i));
      CHECK(request.name.ends_with(absl::StrCat(".", i)));
    }
    // A choice leaves the list with its second token.
    for (const size_t nth : {2, 0, 2, 1, 1, 0}) served.generator->StepNth(nth);
    return 0;
  });
  REQUIRE(client.ReadUntil("data: [DONE]\n\n"));
  CHECK(Pieces(client.received) == std::vector<std::string>{"2 a", "0 a", "2 a", "2  length", "1 a",
                                                            "1 a", "1  length", "0 a",
                                                            "0  length"});
  CHECK(served.generator->n_cancelled == 0);
  CheckNothingLeft(served, 1);
  // One first token, and one gap in each choice.
  CHECK(Metric(served, "baton_time_to_first_token_seconds_count{") == "1");
  CHECK(Metric(served, "baton_inter_token_latency_seconds_count{") == "3");
  CHECK(Metric(served, "vllm:generation_tokens_total{") == "6");
  CHECK(Metric(served, "vllm:prompt_tokens_total{") == "2");
}

TEST_CASE("a batch of prompts, each with its choices, in one answer") {
  Served served;
  const auto response = served.Client().Post(
      "/v1/completions", absl::StrCat(R"({"prompt":[[)", kA, "],[", kB, "],[7,", kA,
                                      R"(]],"n":2,"max_tokens":3,"seed":5,"ignore_eos":true})"));
  REQUIRE(response.ok());
  REQUIRE(response->status == 200);
  const json::value body = json::parse(response->body);
  REQUIRE(body.at("choices").as_array().size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    const json::value& choice = body.at("choices").at(i);
    CHECK(choice.at("index") == i);
    CHECK(choice.at("text") == (i / 2 == 1 ? "bbb" : "aaa"));
    CHECK(choice.at("finish_reason") == "length");
    CHECK(served.generator->submitted[i].sampling.seed == ChoiceSeed(5, i % 2));
  }
  CHECK(body.at("usage").at("prompt_tokens") == 4);
  CHECK(body.at("usage").at("completion_tokens") == 18);
  CheckNothingLeft(served, 1);
}

TEST_CASE("the first choice of each prompt alone is asked to score it, and all tell of it") {
  Served served;
  const auto response = served.Client().Post(
      "/v1/completions",
      R"({"prompt":[[5,6],[7,8]],"n":2,"max_tokens":2,"prompt_logprobs":1,"ignore_eos":true})");
  REQUIRE(response.ok());
  REQUIRE(response->status == 200);
  const json::value body = json::parse(response->body);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(served.generator->submitted[i].prompt_logprobs == (i % 2 == 0 ? 1 : -1));
    const json::array& told = body.at("choices").at(i).at("prompt_logprobs").as_array();
    REQUIRE(told.size() == 2);
    CHECK(told[1].as_object().contains(i < 2 ? "6" : "8"));
  }
  CheckNothingLeft(served, 1);
}

TEST_CASE("a client that goes away takes all its choices with it") {
  Served served;
  served.generator->hold = true;
  for (const char* stream : {"true", "false"}) {
    const int before = served.generator->n_submitted, cancelled = served.generator->n_cancelled;
    RawClient client(served.port);
    REQUIRE(client.Send(
        Post("/v1/completions",
             absl::StrCat(R"({"prompt":[[5],[6]],"n":2,"max_tokens":9,"stream":)", stream, "}"))));
    REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == before + 4; }));
    served.On([&] {
      served.generator->StepNth(1);
      return 0;
    });
    client.Close();
    CHECK(served.WaitFor([&] { return served.generator->n_cancelled == cancelled + 4; }));
    CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));
  }
  CheckNothingLeft(served, 2);
  CHECK(Metric(served, R"(baton_requests_ended_total{model="demo",reason="abort")") == "2");
}

TEST_CASE("a client that goes away after some choices ended cancels only the others") {
  Served served;
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(
      client.Send(Post("/v1/completions", R"({"prompt":[5],"n":3,"max_tokens":1,"stream":true})")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 3; }));
  served.On([&] {
    served.generator->StepNth(0);
    return 0;
  });
  REQUIRE(client.ReadUntil("\"length\""));
  client.Close();
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 2; }));
  CheckNothingLeft(served, 1);
}

TEST_CASE("a choice that fails ends the request, and the other choices are cancelled") {
  Served served;
  served.generator->hold = true;
  const auto fail = [&] {
    served.On([&] {
      served.generator->FailNth(1, absl::UnavailableError("every worker is gone"));
      return 0;
    });
  };
  RawClient streamed(served.port), whole(served.port);
  REQUIRE(streamed.Send(
      Post("/v1/completions", R"({"prompt":[5],"n":3,"max_tokens":9,"stream":true})")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 3; }));
  served.On([&] {
    served.generator->StepAll();
    return 0;
  });
  fail();
  REQUIRE(streamed.ReadUntil("data: [DONE]\n\n\r\n0\r\n\r\n"));
  const std::vector<std::string> pieces = Pieces(streamed.received);
  REQUIRE(pieces.size() == 4);
  CHECK(pieces.back() == "error");
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 2; }));
  CHECK(served.WaitFor([&] { return served.generator->View().running == 0; }));

  REQUIRE(whole.Send(Post("/v1/completions", R"({"prompt":[5],"n":3,"max_tokens":9})")));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 6; }));
  fail();
  REQUIRE(whole.ReadUntil("every worker is gone"));
  CHECK(whole.received.find("HTTP/1.1 503") == 0);
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 4; }));
  CheckNothingLeft(served, 2);
  CHECK(Metric(served, R"(baton_requests_ended_total{model="demo",reason="error")") == "2");
}

TEST_CASE("a choice that is refused refuses the request, and those before it are cancelled") {
  Served served;
  served.generator->hold = true;
  served.On([&] {
    served.generator->refusal = absl::ResourceExhaustedError("1024 requests are waiting");
    served.generator->n_taken = 2;
    return 0;
  });
  const auto response =
      served.Client().Post("/v1/completions", R"({"prompt":[5],"n":4,"max_tokens":9})");
  REQUIRE(response.ok());
  CHECK(response->status == 429);
  CHECK(served.generator->n_submitted == 2);
  CHECK(served.WaitFor([&] { return served.generator->n_cancelled == 2; }));
  CheckNothingLeft(served, 0);
}

TEST_CASE("a stop string ends its own choice alone") {
  Served served;
  served.generator->hold = true;
  RawClient client(served.port);
  REQUIRE(client.Send(
      Post("/v1/completions", absl::StrCat(R"({"prompt":[[)", kA, "],[", kB,
                                           R"(]],"max_tokens":3,"stop":"aa","stream":true})"))));
  REQUIRE(served.WaitFor([&] { return served.generator->n_submitted == 2; }));
  for (int i = 0; i < 3; ++i) {
    served.On([&] {
      served.generator->StepAll();
      return 0;
    });
  }
  REQUIRE(client.ReadUntil("data: [DONE]\n\n"));
  std::string first, second;
  int n_stop = 0, n_length = 0;
  for (const std::string& piece : Pieces(client.received)) {
    if (piece.ends_with(" stop")) ++n_stop;
    if (piece.ends_with(" length")) ++n_length;
    if (piece == "0 a") first += "a";
    if (piece == "1 b") second += "b";
  }
  CHECK(first.empty());
  CHECK(second == "bbb");
  CHECK(n_stop == 1);
  CHECK(n_length == 1);
  CHECK(served.generator->n_cancelled == 1);
  CheckNothingLeft(served, 1);
}

TEST_CASE("the best of several: all are generated, some are told") {
  Served served;
  const auto response =
      served.Client().Post("/v1/completions", R"({"prompt":[5],"n":1,"best_of":3,"max_tokens":2})");
  REQUIRE(response.ok());
  CHECK(response->status == 200);
  CHECK(served.generator->n_submitted == 3);
  CHECK(served.generator->submitted[2].sampling.top_logprobs == 0);
  const json::value body = json::parse(response->body);
  CHECK(body.at("choices").as_array().size() == 1);
  CHECK(body.at("usage").at("completion_tokens") == 6);
  CheckNothingLeft(served, 1);
}

TEST_CASE("the fingerprint names the model and the numerics, or nothing before they are known") {
  Served served;
  const auto fingerprint = [&] {
    const auto response = served.Client().Post("/v1/completions", R"({"prompt":[5]})");
    return json::serialize(json::parse(response->body).at("system_fingerprint"));
  };
  CHECK(fingerprint() == "null");
  served.On([&] {
    served.generator->view.model_fingerprint = 0xabc;
    served.generator->view.numerics_id = "v1/cpu-x86/int4g128/kv-bf16/l2";
    return 0;
  });
  CHECK(fingerprint() == R"("baton-0000000000000abc-v1/cpu-x86/int4g128/kv-bf16/l2")");
}

}  // namespace
}  // namespace baton
