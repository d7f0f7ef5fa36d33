// Log-probabilities of tokens in answers: their forms, and that they stay with their text.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/server/api/asked_answer.h"

namespace baton {
namespace {

namespace json = boost::json;
using Asked = AskedAnswer;

const int32_t kA = Ids("a")[0], kB = Ids("b")[0], kC = Ids("c")[0];

EmitToken Emit(int32_t token, float logprob, std::vector<TokenLogprob> others = {}) {
  EmitToken emit;
  emit.token = token;
  emit.logprob = logprob;
  emit.logprobs = std::move(others);
  return emit;
}

constexpr const char* kHi = R"({"messages":[{"role":"user","content":"hi"}])";

TEST_CASE("the forms of both endpoints, byte for byte") {
  const auto logprobs = [](Endpoint endpoint, const std::function<void(ApiRequest*)>& change) {
    Asked asked(endpoint == Endpoint::kChat ? absl::StrCat(kHi, "}") : R"({"prompt":[5]})",
                endpoint, [&](ApiRequest* request) {
                  request->top_logprobs = 2;
                  change(request);
                });
    asked.Token(Emit(kA, -0.5f, {{kA, -0.5f}, {kB, -1.25f}, {kC, -2}, {kA, -0.5f}}));
    asked.Token(Emit(kC, -3, {{kB, -0.0f}, {kA, -2}, {kC, -3}, {kA, -2}}));
    asked.Token(Emit(Demo().eos_tokens[0], -1));
    const std::string text = asked.End(EndReason::kStopToken);
    const size_t at = text.find(R"("logprobs":)") + 11;
    return text.substr(at, text.find(R"(,"finish_reason")") - at);
  };
  const auto named = [](ApiRequest* request) { request->logprob_token_ids = {kC, kA}; };
  const auto by_id = [&](ApiRequest* request) {
    named(request);
    request->tokens_as_ids = true;
  };
  const std::string a = R"("bytes":[97])", b = R"("bytes":[98])", c = R"("bytes":[99])";
  CHECK(logprobs(Endpoint::kChat, named) ==
        R"({"content":[{"token":"a","logprob":-0.5,)" + a + R"(,"top_logprobs":[)" +
            R"({"token":"a","logprob":-0.5,)" + a + R"(},{"token":"b","logprob":-1.25,)" + b +
            R"(},{"token":"c","logprob":-2.0,)" + c + "}]}," + R"({"token":"c","logprob":-3.0,)" +
            c + R"(,"top_logprobs":[)" + R"({"token":"b","logprob":0.0,)" + b +
            R"(},{"token":"a","logprob":-2.0,)" + a + R"(},{"token":"c","logprob":-3.0,)" + c +
            R"(}]}],"refusal":null})");
  CHECK(logprobs(Endpoint::kCompletions, named) ==
        R"({"tokens":["a","c"],"token_logprobs":[-0.5,-3.0],)"
        R"("top_logprobs":[{"a":-0.5,"b":-1.25,"c":-2.0},{"b":0.0,"a":-2.0,"c":-3.0}],)"
        R"("text_offset":[0,1]})");
  const std::string ids = logprobs(Endpoint::kCompletions, by_id);
  CHECK(ids.find(absl::StrCat(R"({"tokens":["token_id:)", kA, R"(","token_id:)", kC, R"("],)")) ==
        0);
  CHECK(ids.find(absl::StrCat(R"("token_id:)", kB, R"(":-1.25)")) != std::string::npos);
  CHECK(logprobs(Endpoint::kChat, by_id)
            .find(absl::StrCat(R"({"content":[{"token":"token_id:)", kA,
                               R"(","logprob":-0.5,"bytes":[97],)")) == 0);
}

TEST_CASE("minus infinity is -9999.0, and the drawn token is always among a completion's") {
  Asked asked(R"({"prompt":[5]})", Endpoint::kCompletions,
              [](ApiRequest* request) { request->top_logprobs = 1; });
  asked.Token(Emit(kC, -std::numeric_limits<float>::infinity(), {{kB, -0.125f}}));
  const std::string text = asked.End(EndReason::kLength);
  CHECK(text.find(R"("token_logprobs":[-9999.0],"top_logprobs":[{"b":-0.125,"c":-9999.0}])") !=
        std::string::npos);
}

TEST_CASE("a number is read back with the same bits") {
  for (const float logprob : {-0.1f, -1e-7f, -3.4028235e38f, -0.333333343f, -13.8155107f}) {
    Asked asked(R"({"prompt":[5]})", Endpoint::kCompletions,
                [](ApiRequest* request) { request->top_logprobs = 0; });
    asked.Token(Emit(kA, logprob));
    const json::value body = json::parse(asked.End(EndReason::kLength));
    const double told =
        body.at("choices").at(0).at("logprobs").at("token_logprobs").at(0).as_double();
    CHECK(static_cast<float>(told) == std::max(logprob, -9999.0f));
  }
}

// The tokens of `text` one by one, all events of the stream, or the whole answer.
struct Stream {
  std::string text;                 // all text
  std::vector<std::string> tokens;  // of all logprobs
  std::vector<int64_t> offsets;     // completions
  bool never_early = true;          // no token was told before its text
};

Stream StreamOf(const std::string& text, const std::vector<std::string>& stop,
                EndReason reason = EndReason::kLength, bool include_stop = false,
                int64_t interval = 1) {
  Asked asked(R"({"prompt":[5],"stream":true})", Endpoint::kCompletions, [&](ApiRequest* request) {
    request->top_logprobs = 0;
    request->stop = stop;
    request->include_stop = include_stop;
    request->stream_interval = interval;
  });
  std::string stream;
  for (const int32_t id : Ids(text)) stream += asked.Token(Emit(id, -1));
  stream += asked.End(asked.text().stopped() ? EndReason::kCancelled : reason);
  Stream seen;
  for (const std::string& event : Events(stream)) {
    if (event == "[DONE]") continue;
    const json::value choice = json::parse(event).at("choices").at(0);
    seen.text += std::string(choice.at("text").as_string());
    if (choice.at("logprobs").is_null()) continue;
    const json::value& logprobs = choice.at("logprobs");
    for (const json::value& token : logprobs.at("tokens").as_array())
      seen.tokens.emplace_back(token.as_string());
    for (const json::value& offset : logprobs.at("text_offset").as_array())
      seen.offsets.push_back(offset.as_int64());
    if (absl::StrJoin(seen.tokens, "").size() > seen.text.size()) seen.never_early = false;
  }
  return seen;
}

TEST_CASE("tokens are told with or after their text, and with all of it at the end") {
  const std::string text = "two ducks and three more";
  std::vector<std::string> expected;
  for (const int32_t id : Ids(text)) expected.emplace_back(Demo().tokenizer->TokenBytes(id));
  for (const int64_t interval : {1, 2, 100}) {
    for (const std::vector<std::string>& stop : std::vector<std::vector<std::string>>{
             {}, {"ducks on"}, {"ducks and three less", "zebra"}}) {
      const Stream seen = StreamOf(text, stop, EndReason::kLength, false, interval);
      CHECK(seen.text == text);
      CHECK(seen.tokens == expected);
      CHECK(seen.never_early);
      int64_t offset = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(seen.offsets[i] == offset);
        offset += static_cast<int64_t>(expected[i].size());
      }
    }
  }
}

TEST_CASE("tokens that a stop string cuts are not told, wherever it stands") {
  const std::string text = "two ducks and three more";
  std::vector<std::string> tokens;
  for (const int32_t id : Ids(text)) tokens.emplace_back(Demo().tokenizer->TokenBytes(id));
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (const size_t length : {1, 3, 7}) {
      const std::string stop = text.substr(begin, length);
      const size_t first = text.find(stop);
      for (const bool include : {false, true}) {
        const size_t cut = first + (include ? stop.size() : 0);
        std::vector<std::string> expected;
        size_t end = 0;
        for (const std::string& token : tokens) {
          end += token.size();
          if (end <= cut) expected.push_back(token);
        }
        const Stream seen = StreamOf(text, {stop}, EndReason::kLength, include);
        INFO(stop << " " << include);
        CHECK(seen.text == text.substr(0, cut));
        CHECK(seen.tokens == expected);
        CHECK(seen.never_early);
      }
    }
  }
}

TEST_CASE("bytes of split characters are told when the character is whole, and join to the text") {
  const std::string text = "a 🦆 in 東京 ¿qué?";
  for (const bool stream : {false, true}) {
    Asked asked(absl::StrCat(kHi, stream ? R"(,"stream":true})" : "}"), Endpoint::kChat,
                [](ApiRequest* request) { request->top_logprobs = 0; });
    const std::vector<int32_t> ids = Ids(text);
    std::string bytes, content, output;
    const auto read = [&](const json::value& choice, const json::value& message) {
      if (const json::value* piece = message.as_object().if_contains("content"))
        content += std::string(piece->as_string());
      if (choice.at("logprobs").is_null()) return;
      for (const json::value& token : choice.at("logprobs").at("content").as_array()) {
        CHECK(token.at("top_logprobs").as_array().empty());
        for (const json::value& byte : token.at("bytes").as_array())
          bytes += static_cast<char>(byte.as_int64());
      }
      CHECK(bytes.size() <= content.size());
    };
    for (const int32_t id : ids) output += asked.Token(Emit(id, -1));
    output += asked.End(EndReason::kLength);
    if (stream) {
      for (const std::string& event : Events(output)) {
        if (event == "[DONE]") continue;
        const json::value choice = json::parse(event).at("choices").at(0);
        read(choice, choice.at("delta"));
      }
    } else {
      const json::value choice = json::parse(output).at("choices").at(0);
      read(choice, choice.at("message"));
      CHECK(choice.at("logprobs").at("content").as_array().size() == ids.size());
    }
    CHECK(content == text);
    CHECK(bytes == text);
  }
}

TEST_CASE("offsets count characters, from the beginning of the prompt's text") {
  Asked asked(R"({"prompt":"é"})", Endpoint::kCompletions, [](ApiRequest* request) {
    request->echo = true;
    request->top_logprobs = 0;
  });
  const size_t n_prompt = asked.prompts.front().generate.prompt.size();
  const std::vector<int32_t> ids = Ids("東a");
  for (const int32_t id : ids) {
    EmitToken token = Emit(id, -1);
    if (id == ids.front()) token.prompt_logprobs.resize(n_prompt - 1);
    asked.Token(token);
  }
  const json::value choice = json::parse(asked.End(EndReason::kLength)).at("choices").at(0);
  CHECK(choice.at("text") == "é東a");
  const json::array& offsets = choice.at("logprobs").at("text_offset").as_array();
  REQUIRE(offsets.size() == n_prompt + ids.size());
  CHECK(offsets.front() == 0);
  CHECK(offsets[n_prompt] == 1);
  CHECK(offsets.back() == 2);
}

TEST_CASE("a chat that stops at once tells no token, and an empty list") {
  Asked asked(absl::StrCat(kHi, "}"), Endpoint::kChat,
              [](ApiRequest* request) { request->top_logprobs = 5; });
  asked.Token(Emit(Demo().eos_tokens[0], -1));
  const json::value choice = json::parse(asked.End(EndReason::kStopToken)).at("choices").at(0);
  CHECK(json::serialize(choice.at("logprobs")) == R"({"content":[],"refusal":null})");
}

TEST_CASE("an event has at most so many log-probabilities, however long the interval") {
  Asked asked(R"({"prompt":[5],"stream":true})", Endpoint::kCompletions, [](ApiRequest* request) {
    request->top_logprobs = 20;
    request->logprob_token_ids.assign(128, kB);
    request->stream_interval = 1024;
  });
  std::string stream;
  constexpr int kTokens = 100, kOfToken = 20 + 128 + 1;
  const std::vector<TokenLogprob> others(20 + 128, TokenLogprob{kB, -1.0f});
  for (int i = 0; i < kTokens; ++i) stream += asked.Token(Emit(kA, -0.5f, others));
  stream += asked.End(EndReason::kLength);
  int n_tokens = 0;
  for (const std::string& event : Events(stream)) {
    if (event == "[DONE]") continue;
    const json::value logprobs = json::parse(event).at("choices").at(0).at("logprobs");
    const auto n = static_cast<int>(logprobs.at("tokens").as_array().size());
    CHECK(n * kOfToken <= 2048);
    n_tokens += n;
  }
  CHECK(n_tokens == kTokens);
}

}  // namespace
}  // namespace baton
