#include "server/api/completion_answer.h"

#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "tests/server/api/asked_answer.h"

namespace baton {
namespace {

namespace json = boost::json;
using Asked = AskedAnswer;

TEST_CASE("a completion stream: one event per token, finish, usage, done") {
  Asked answer(R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})");
  std::string stream, text;
  for (const int32_t id : Ids("two ducks")) stream += answer.Token(id);
  const size_t n_tokens = Ids("two ducks").size();
  stream += answer.End(EndReason::kLength);
  const std::vector<std::string> events = Events(stream);
  REQUIRE(events.size() == n_tokens + 3);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value chunk = json::parse(events[i]);
    CHECK(chunk.at("id") == "cmpl-id1");
    CHECK(chunk.at("object") == "text_completion");
    CHECK(chunk.at("created") == 1700000000);
    CHECK(chunk.at("model") == "demo");
    if (i == n_tokens + 1) {
      CHECK(chunk.at("choices").as_array().empty());
      CHECK(chunk.at("usage").at("prompt_tokens") == answer.text().n_prompt());
      CHECK(chunk.at("usage").at("completion_tokens") == n_tokens);
      CHECK(chunk.at("usage").at("total_tokens") == answer.text().n_prompt() + n_tokens);
      continue;
    }
    CHECK(chunk.at("usage").is_null());
    const json::value& choice = chunk.at("choices").at(0);
    CHECK(choice.at("index") == 0);
    text += std::string(choice.at("text").as_string());
    CHECK((i == n_tokens ? choice.at("finish_reason") == "length"
                         : choice.at("finish_reason").is_null()));
  }
  CHECK(text == "two ducks");
  CHECK(events.back() == "[DONE]");
}

TEST_CASE("a chat stream: the role comes with the first token, the end without content") {
  Asked answer(R"({"messages":[{"role":"user","content":"hi"}],"stream":true})", Endpoint::kChat);
  const std::vector<int32_t> ids = Ids("yes no");
  const std::vector<std::string> first = Events(answer.Token(ids[0]));
  REQUIRE(first.size() == 2);
  const json::value role = json::parse(first[0]);
  CHECK(role.at("object") == "chat.completion.chunk");
  CHECK(role.at("id") == "chatcmpl-id1");
  CHECK(json::serialize(role.at("choices").at(0).at("delta")) ==
        R"({"role":"assistant","content":""})");
  CHECK_FALSE(json::parse(first[1]).at("choices").at(0).at("delta").as_object().contains("role"));
  CHECK(Events(answer.Token(ids[1])).size() == 1);
  // The stop token has no text and no event.
  CHECK(answer.Token(Demo().eos_tokens[0]).empty());
  const std::vector<std::string> last = Events(answer.End(EndReason::kStopToken));
  REQUIRE(last.size() == 2);
  const json::value finish = json::parse(last[0]);
  CHECK(json::serialize(finish.at("choices").at(0).at("delta")) == "{}");
  CHECK(finish.at("choices").at(0).at("finish_reason") == "stop");
  CHECK(finish.at("choices").at(0).at("stop_reason").is_null());
  CHECK(answer.text().n_tokens() == 3);
}

TEST_CASE("a chat whose first token is the stop token still has a role and an end") {
  Asked answer(R"({"messages":[{"role":"user","content":"hi"}],"stream":true})", Endpoint::kChat);
  CHECK(answer.Token(Demo().eos_tokens[0]).empty());
  CHECK(Events(answer.End(EndReason::kStopToken)).size() == 3);
}

TEST_CASE("no event holds half a character") {
  const std::string text = "a 🦆 in 東京 ¿qué?";
  Asked answer(R"({"prompt":"a","stream":true})");
  std::string all;
  std::string stream;
  for (const int32_t id : Ids(text)) {
    for (const std::string& event : Events(answer.Token(id))) {
      const json::value chunk = json::parse(event);  // fails on invalid UTF-8
      all += std::string(chunk.at("choices").at(0).at("text").as_string());
    }
  }
  for (const std::string& event : Events(answer.End(EndReason::kLength))) {
    if (event == "[DONE]") continue;
    all += std::string(json::parse(event).at("choices").at(0).at("text").as_string());
  }
  CHECK(all == text);
}

TEST_CASE("a stop string ends the text before it, across tokens") {
  Asked answer(R"({"prompt":"a","stop":["ducks"]})");
  bool stopped = false;
  for (const int32_t id : Ids("two ducks three")) {
    answer.Token(id);
    stopped |= answer.text().stopped();
  }
  CHECK(stopped);
  const json::value body = json::parse(answer.End(EndReason::kCancelled));
  CHECK(body.at("choices").at(0).at("text") == "two ");
  CHECK(body.at("choices").at(0).at("finish_reason") == "stop");
  CHECK(body.at("choices").at(0).at("stop_reason") == "ducks");

  Asked kept(R"({"prompt":"a","stop":"ducks","include_stop_str_in_output":true})");
  for (const int32_t id : Ids("two ducks three")) kept.Token(id);
  CHECK(json::parse(kept.End(EndReason::kCancelled)).at("choices").at(0).at("text") == "two ducks");

  Asked half(R"({"prompt":"a","stop":"ducksong"})");
  for (const int32_t id : Ids("two ducks")) half.Token(id);
  CHECK(json::parse(half.End(EndReason::kLength)).at("choices").at(0).at("text") == "two ducks");
}

TEST_CASE("a stop string does not end the answer before min_tokens tokens") {
  const std::vector<int32_t> ids = Ids("two ducks two ducks two");
  const auto text = [&](int64_t min_tokens) {
    Asked answer(R"({"prompt":"a","max_tokens":100,"stop":"ducks"})", Endpoint::kCompletions,
                 [&](ApiRequest* request) { request->min_tokens = min_tokens; });
    for (const int32_t id : ids) answer.Token(id);
    const json::value body = json::parse(answer.End(EndReason::kLength));
    return std::string(body.at("choices").at(0).at("text").as_string());
  };
  CHECK(text(0) == "two ");
  const auto n_first = static_cast<int64_t>(Ids("two ducks").size());
  CHECK(text(n_first) == "two ducks two ");
  CHECK(text(static_cast<int64_t>(Ids("two").size())) == "two ");
  CHECK(text(static_cast<int64_t>(ids.size())) == "two ducks two ducks two");
}

TEST_CASE("ids, digests and timings when asked, in streams and in whole answers") {
  const std::string fields = R"("return_token_ids":true,"baton_digest":true,"timings":true)";
  Asked whole(R"({"prompt":[5,6],)" + fields + "}");
  whole.Token(7);
  whole.Token(8);
  const json::value body = json::parse(whole.End(EndReason::kLength));
  const json::value& choice = body.at("choices").at(0);
  CHECK(json::serialize(choice.at("token_ids")) == "[7,8]");
  CHECK(json::serialize(choice.at("prompt_token_ids")) == "[5,6]");
  CHECK(json::serialize(choice.at("baton_digests")) ==
        R"(["00000000abcdef00","00000000abcdef01"])");
  CHECK(body.at("timings").at("prefill_ms") == 5.0);
  CHECK(body.at("timings").at("text_ms") == 1.0);
  CHECK(body.at("timings").at("prefill_worker") == "prefill0");
  CHECK_FALSE(body.at("timings").as_object().contains("prefill_heads"));
  CHECK(body.at("usage").at("prompt_tokens_details").at("cached_tokens") == 0);

  Asked again(R"({"prompt":[5,6]})");
  again.reused_tokens = 1;
  again.Token(7);
  CHECK(json::parse(again.End(EndReason::kLength))
            .at("usage")
            .at("prompt_tokens_details")
            .at("cached_tokens") == 1);

  Asked relay(R"({"prompt":[5,6],)" + fields + "}");
  relay.head = "prefill1";
  relay.Token(7);
  const json::value timings = json::parse(relay.End(EndReason::kLength)).at("timings");
  CHECK(timings.at("prefill_heads") == "prefill1");
  CHECK(timings.at("prefill_worker") == "prefill0");

  Asked stream(R"({"prompt":[5,6],"stream":true,)" + fields + "}");
  const json::value first = json::parse(Events(stream.Token(7))[0]);
  CHECK(json::serialize(first.at("choices").at(0).at("token_ids")) == "[7]");
  CHECK(json::serialize(first.at("choices").at(0).at("prompt_token_ids")) == "[5,6]");
  const json::value second = json::parse(Events(stream.Token(8))[0]);
  CHECK_FALSE(second.at("choices").at(0).as_object().contains("prompt_token_ids"));
  stream.Token(Demo().eos_tokens[0]);
  const json::value finish = json::parse(Events(stream.End(EndReason::kStopToken))[0]);
  CHECK(finish.at("choices").at(0).at("baton_digests").as_array().size() == 1);
  CHECK(finish.as_object().contains("timings"));
}

TEST_CASE("a stream that fails says so and ends") {
  Asked asked(R"({"prompt":"a","stream":true})");
  asked.Token(5);
  const auto events =
      Events(asked.answer->OnError(FromClusterStatus(absl::UnavailableError("no worker is left"))));
  REQUIRE(events.size() == 2);
  CHECK(json::parse(events[0]).at("error").at("message") == "no worker is left");
  CHECK(events[1] == "[DONE]");
}

}  // namespace
}  // namespace baton
