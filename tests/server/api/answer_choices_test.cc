// Answers with several choices, byte for byte: batches, samples, ranks, the prompt's text, usage.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/server/api/asked_answer.h"

namespace baton {
namespace {

namespace json = boost::json;
using Asked = AskedAnswer;

// Texts of one token each.
const int32_t kA = Ids("a")[0], kB = Ids("b")[0], kC = Ids("c")[0];

void SetN(ApiRequest* request) { request->n = 2; }

TEST_CASE("choices of a stream interleave, each with one finish event, one usage for all") {
  Asked asked(R"({"prompt":[5,6],"stream":true,"stream_options":{"include_usage":true}})",
              Endpoint::kCompletions, [](ApiRequest* request) { request->n = 3; });
  asked.reused_tokens = 1;
  std::string stream = asked.Token(kA, 1);
  stream += asked.Token(kB, 0);
  stream += asked.Token(kC, 1);
  stream += asked.EndChoice(EndReason::kLength, 1);
  stream += asked.Token(Demo().eos_tokens[0], 2);
  stream += asked.EndChoice(EndReason::kStopToken, 2);
  stream += asked.EndChoice(EndReason::kLength, 0);
  stream += asked.answer->OnEnd();
  const auto piece = [](int index, const char* text, const char* finish) {
    return absl::StrCat(R"({"choices":[{"index":)", index, R"(,"text":")", text,
                        R"(","logprobs":null,"finish_reason":)", finish,
                        finish == std::string("null") ? "" : R"(,"stop_reason":null)",
                        R"(}],"usage":null})");
  };
  CHECK(ShortEvents(stream) ==
        std::vector<std::string>{
            piece(1, "a", "null"), piece(0, "b", "null"), piece(1, "c", "null"),
            piece(1, "", R"("length")"), piece(2, "", R"("stop")"), piece(0, "", R"("length")"),
            R"({"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":4,"total_tokens":6,)"
            R"("prompt_tokens_details":{"cached_tokens":1},)"
            R"("completion_tokens_details":{"reasoning_tokens":0}}})",
            "[DONE]"});
}

TEST_CASE("a batch: choices by prompt, then by sample; prompts count once each") {
  Asked asked(R"({"prompt":[[5,6],[7],[8,9,10]],"return_token_ids":true})", Endpoint::kCompletions,
              SetN);
  REQUIRE(asked.answer->n_choices() == 6);
  for (size_t choice = 0; choice < 6; ++choice) {
    for (size_t n = 0; n <= choice; ++n) CHECK(asked.Token(kA, choice).empty());
    CHECK(asked.EndChoice(EndReason::kLength, choice).empty());
  }
  std::string choices;
  for (int i = 0; i < 6; ++i) {
    const char* const kPrompts[] = {"[5,6]", "[7]", "[8,9,10]"};
    absl::StrAppend(
        &choices, i == 0 ? "" : ",", R"({"index":)", i, R"(,"text":")",
        std::string(static_cast<size_t>(i + 1), 'a'),
        R"(","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[)", kA);
    for (int n = 0; n < i; ++n) absl::StrAppend(&choices, ",", kA);
    absl::StrAppend(&choices, R"(],"prompt_token_ids":)", kPrompts[i / 2], "}");
  }
  CHECK(asked.answer->OnEnd() ==
        absl::StrCat(R"({"id":"cmpl-id1","object":"text_completion","created":1700000000,)"
                     R"("model":"demo","system_fingerprint":"fp","choices":[)",
                     choices,
                     R"(],"usage":{"prompt_tokens":6,"completion_tokens":21,"total_tokens":27,)"
                     R"("prompt_tokens_details":{"cached_tokens":0},)"
                     R"("completion_tokens_details":{"reasoning_tokens":0}}})"));
}

TEST_CASE("the best of several are those with the highest mean log-probability, in this order") {
  Asked asked(R"({"prompt":[5]})", Endpoint::kCompletions, [](ApiRequest* request) {
    request->n = 2;
    request->best_of = 4;
  });
  REQUIRE(asked.answer->n_choices() == 4);
  const auto feed = [&](size_t choice, int32_t token, const std::vector<float>& logprobs) {
    for (const float logprob : logprobs) {
      EmitToken emit;
      emit.token = token;
      emit.logprob = logprob;
      CHECK(asked.Token(emit, choice).empty());
    }
    asked.EndChoice(EndReason::kLength, choice);
  };
  feed(0, kA, {-1, -5});      // mean -3
  feed(1, kB, {-2, -2, -2});  // mean -2, though the sum is as low
  feed(2, kC, {-4});
  feed(3, kA, {-1, -3});  // mean -2, later
  const json::value body = json::parse(asked.answer->OnEnd());
  REQUIRE(body.at("choices").as_array().size() == 2);
  CHECK(body.at("choices").at(0).at("index") == 0);
  CHECK(body.at("choices").at(0).at("text") == "bbb");
  CHECK(body.at("choices").at(1).at("index") == 1);
  CHECK(body.at("choices").at(1).at("text") == "aa");
  CHECK(body.at("choices").at(0).at("logprobs").is_null());
  CHECK(body.at("usage").at("completion_tokens") == 8);  // all that were generated
}

TEST_CASE("echo: the prompt's text stands first, and is the first event of each choice") {
  const auto echo = [](ApiRequest* request) {
    request->echo = true;
    request->n = 2;
  };
  Asked whole(R"({"prompt":"two \"ducks\""})", Endpoint::kCompletions, echo);
  for (size_t choice : {0, 1}) {
    whole.Token(choice == 0 ? kA : kB, choice);
    whole.EndChoice(EndReason::kLength, choice);
  }
  const json::value body = json::parse(whole.answer->OnEnd());
  CHECK(body.at("choices").at(0).at("text") == "two \"ducks\"a");
  CHECK(body.at("choices").at(1).at("text") == "two \"ducks\"b");

  Asked streamed(R"({"prompt":"two ducks","stream":true})", Endpoint::kCompletions, echo);
  std::string stream = streamed.Token(kB, 1);
  stream += streamed.Token(Demo().eos_tokens[0], 0);
  stream += streamed.EndChoice(EndReason::kStopToken, 0);
  const auto piece = [](int index, const char* text, const char* end) {
    return absl::StrCat(R"({"choices":[{"index":)", index, R"(,"text":")", text,
                        R"(","logprobs":null,"finish_reason":)", end, "}]}");
  };
  CHECK(ShortEvents(stream) ==
        std::vector<std::string>{piece(1, "two ducks", "null"), piece(1, "b", "null"),
                                 piece(0, "two ducks", "null"),
                                 piece(0, "", R"("stop","stop_reason":null)")});
}

TEST_CASE("usage goes with every event, and grows, when both are asked for; null when one is") {
  const auto usages = [](const std::string& options, Endpoint endpoint) {
    const std::string prompt = endpoint == Endpoint::kChat
                                   ? R"("messages":[{"role":"user","content":"hi"}])"
                                   : R"("prompt":[5])";
    Asked asked(absl::StrCat("{", prompt, R"(,"stream":true,"stream_options":)", options, "}"),
                endpoint, SetN);
    std::string stream = asked.Token(kA, 0);
    stream += asked.Token(kA, 1);
    for (const size_t choice : {0, 1}) stream += asked.EndChoice(EndReason::kLength, choice);
    stream += asked.answer->OnEnd();
    std::vector<std::string> seen;
    for (const std::string& event : ShortEvents(stream)) {
      if (event == "[DONE]") continue;
      const json::value parsed = json::parse(event);
      const json::value* usage = parsed.as_object().if_contains("usage");
      seen.push_back(usage == nullptr   ? "absent"
                     : usage->is_null() ? "null"
                                        : json::serialize(usage->at("completion_tokens")));
    }
    return seen;
  };
  using Seen = std::vector<std::string>;
  const std::string both = R"({"include_usage":true,"continuous_usage_stats":true})";
  CHECK(usages(both, Endpoint::kCompletions) == Seen{"1", "2", "2", "2", "2"});
  CHECK(usages(both, Endpoint::kChat) == Seen{"1", "1", "2", "2", "2", "2", "2"});
  CHECK(usages(R"({"include_usage":true})", Endpoint::kChat) ==
        Seen{"null", "null", "null", "null", "null", "null", "2"});
  CHECK(usages(R"({"continuous_usage_stats":true})", Endpoint::kCompletions) ==
        Seen{"absent", "absent", "absent", "absent"});
}

TEST_CASE("a chat: refusal is null, and the prompt's ids stand beside the choices") {
  const std::string body =
      R"({"messages":[{"role":"user","content":"hi"}],"return_token_ids":true)";
  Asked whole(body + "}", Endpoint::kChat);
  whole.Token(kA);
  const std::string prompt_ids = absl::StrJoin(whole.prompts[0].generate.prompt, ",");
  const json::value answer = json::parse(whole.End(EndReason::kLength));
  CHECK(json::serialize(answer.at("choices")) ==
        absl::StrCat(R"([{"index":0,"message":{"role":"assistant","content":"a","refusal":null},)"
                     R"("logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[)",
                     kA, "]}]"));
  CHECK(json::serialize(answer.at("prompt_token_ids")) == "[" + prompt_ids + "]");

  Asked streamed(body + R"(,"stream":true})", Endpoint::kChat, SetN);
  std::string stream = streamed.Token(kA, 1);
  stream += streamed.Token(kB, 0);
  const auto begin = [](int index, const std::string& more) {
    return absl::StrCat(R"({"choices":[{"index":)", index,
                        R"(,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                        R"("finish_reason":null}])",
                        more, "}");
  };
  const auto delta = [](int index, const char* text, int32_t token) {
    return absl::StrCat(R"({"choices":[{"index":)", index, R"(,"delta":{"content":")", text,
                        R"("},"logprobs":null,"finish_reason":null,"token_ids":[)", token, "]}]}");
  };
  CHECK(ShortEvents(stream) ==
        std::vector<std::string>{begin(1, R"(,"prompt_token_ids":[)" + prompt_ids + "]"),
                                 delta(1, "a", kA), begin(0, ""), delta(0, "b", kB)});
}

TEST_CASE("stream_interval: the first token at once, then so many per event, and the rest") {
  const auto texts = [](Endpoint endpoint, int n_tokens, EndReason reason) {
    const std::string prompt = endpoint == Endpoint::kChat
                                   ? R"("messages":[{"role":"user","content":"hi"}])"
                                   : R"("prompt":[5])";
    Asked asked(absl::StrCat("{", prompt, R"(,"stream":true,"return_token_ids":true})"), endpoint,
                [](ApiRequest* request) { request->stream_interval = 3; });
    std::string stream;
    for (int i = 0; i < n_tokens; ++i) stream += asked.Token(kA);
    if (reason == EndReason::kStopToken) stream += asked.Token(Demo().eos_tokens[0]);
    stream += asked.End(reason);
    std::vector<std::string> seen;
    for (const std::string& event : ShortEvents(stream)) {
      if (event == "[DONE]") continue;
      const json::object choice = json::parse(event).at("choices").at(0).as_object();
      const json::value* text = choice.if_contains("text");
      if (text == nullptr) text = choice.at("delta").as_object().if_contains("content");
      const json::value* ids = choice.if_contains("token_ids");
      seen.push_back(absl::StrCat(text == nullptr ? "-" : std::string(text->as_string()), " ",
                                  ids == nullptr ? 0 : ids->as_array().size(),
                                  choice.at("finish_reason").is_null() ? "" : " end"));
    }
    return seen;
  };
  using Seen = std::vector<std::string>;
  CHECK(texts(Endpoint::kCompletions, 6, EndReason::kLength) == Seen{"a 1", "aaa 3", "aa 2 end"});
  CHECK(texts(Endpoint::kCompletions, 4, EndReason::kStopToken) == Seen{"a 1", "aaa 3", " 1 end"});
  CHECK(texts(Endpoint::kChat, 6, EndReason::kStopToken) ==
        Seen{" 0", "a 1", "aaa 3", "aa 2", "- 1 end"});
  CHECK(texts(Endpoint::kChat, 4, EndReason::kLength) == Seen{" 0", "a 1", "aaa 3", "- 0 end"});
}

}  // namespace
}  // namespace baton
