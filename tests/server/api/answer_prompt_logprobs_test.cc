// Log-probabilities of the prompt in answers: prompt_logprobs, echo with logprobs, and requests
// that generate nothing.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/server/api/asked_answer.h"

namespace baton {
namespace {

namespace json = boost::json;
using Asked = AskedAnswer;

const int32_t kA = Ids("a")[0], kB = Ids("b")[0], kC = Ids("c")[0];
// The prompt "abc" as ids.
const std::string kPrompt = absl::StrCat("[", kA, ",", kB, ",", kC, "]");

// The first token of an answer to kPrompt, with two most probable tokens of each of the prompt's.
EmitToken First(int32_t token) {
  EmitToken emit;
  emit.token = token;
  emit.logprob = -0.25f;
  emit.logprobs = {{token, -0.25f}};
  emit.prompt_logprobs = {{.logprob = -3, .rank = 7, .top = {{kC, -0.5f}, {kA, -1}}},
                          {.logprob = -0.125f, .rank = 1, .top = {{kC, -0.125f}, {kB, -4}}}};
  return emit;
}

std::string Entry(int32_t id, const char* logprob, int rank, const char* text) {
  return absl::StrCat("\"", id, R"(":{"logprob":)", logprob, R"(,"rank":)", rank,
                      R"(,"decoded_token":")", text, "\"}");
}

// The member of kPrompt and First with so many most probable tokens.
std::string Expected(int top) {
  std::string b = Entry(kB, "-3.0", 7, "b");
  if (top > 0) absl::StrAppend(&b, ",", Entry(kC, "-0.5", 1, "c"));
  if (top > 1) absl::StrAppend(&b, ",", Entry(kA, "-1.0", 2, "a"));
  std::string c = Entry(kC, "-0.125", 1, "c");
  if (top > 1) absl::StrAppend(&c, ",", Entry(kB, "-4.0", 2, "b"));
  return absl::StrCat("[null,{", b, "},{", c, "}]");
}

int32_t AskedOfRouter(const std::string& fields) {
  const Asked asked(absl::StrCat(R"({"prompt":)", kPrompt, ",", fields, "}"));
  return asked.prompts.front().generate.prompt_logprobs;
}

TEST_CASE("the router is asked for as many as both lists need") {
  CHECK(AskedOfRouter(R"("max_tokens":1)") == -1);
  CHECK(AskedOfRouter(R"("logprobs":5)") == -1);
  CHECK(AskedOfRouter(R"("echo":true)") == -1);
  CHECK(AskedOfRouter(R"("prompt_logprobs":false)") == -1);
  CHECK(AskedOfRouter(R"("prompt_logprobs":0)") == 0);
  CHECK(AskedOfRouter(R"("prompt_logprobs":20)") == 20);
  CHECK(AskedOfRouter(R"("echo":true,"logprobs":0)") == 0);
  CHECK(AskedOfRouter(R"("echo":true,"logprobs":5,"prompt_logprobs":2)") == 5);
  CHECK(AskedOfRouter(R"("echo":true,"logprobs":1,"prompt_logprobs":2)") == 2);
}

TEST_CASE("prompt_logprobs of a completion: in each choice, once") {
  const bool stream = GENERATE(false, true);
  const int top = GENERATE(0, 1, 2);
  const size_t before = GENERATE(0, 1);  // the choice whose tokens come first
  CAPTURE(stream, top, before);
  Asked asked(absl::StrCat(R"({"prompt":)", kPrompt, R"(,"n":2,"prompt_logprobs":)", top,
                           R"(,"stream":)", stream ? "true" : "false", "}"));
  std::string out;
  for (const size_t choice : {before, 1 - before}) {
    EmitToken first = First(kA);
    if (choice > 0) first.prompt_logprobs.clear();  // the router is asked once
    out += asked.Token(first, choice);
    out += asked.Token(kB, choice);
    out += asked.EndChoice(EndReason::kLength, choice);
    if (choice > 0 && before == choice) CHECK(out.empty());
  }
  out += asked.answer->OnEnd();
  std::vector<std::string> told(2), texts(2);
  std::vector<int> n_events(2);
  const auto read = [&](const std::string& text) {
    const json::value answer = json::parse(text);
    CHECK_FALSE(answer.as_object().contains("prompt_logprobs"));
    for (const json::value& choice : answer.at("choices").as_array()) {
      const auto* list = choice.as_object().if_contains("prompt_logprobs");
      const auto index = static_cast<size_t>(choice.at("index").as_int64());
      CHECK((list != nullptr) == (n_events[index]++ == 0));  // in the first event
      if (list != nullptr) told[index] = json::serialize(*list);
      texts[index] += std::string(choice.at("text").as_string());
    }
  };
  if (stream) {
    const std::vector<std::string> events = Events(out);
    for (size_t i = 0; i + 1 < events.size(); ++i) read(events[i]);
  } else {
    read(out);
  }
  CHECK(texts == std::vector<std::string>{"ab", "ab"});
  for (const std::string& list : told) CHECK(list == json::serialize(json::parse(Expected(top))));
  if (!stream) CHECK(out.find(absl::StrCat(R"("prompt_logprobs":)", Expected(top))) != out.npos);
}

TEST_CASE("prompt_logprobs of a chat: beside the choices, in the first event") {
  const bool stream = GENERATE(false, true);
  Asked asked(absl::StrCat(R"({"messages":[{"role":"user","content":"hi"}],"prompt_logprobs":1,)",
                           R"("n":2,"stream":)", stream ? "true" : "false", "}"),
              Endpoint::kChat);
  const std::vector<int32_t>& prompt = asked.prompts.front().generate.prompt;
  EmitToken first = First(kA);
  first.prompt_logprobs.resize(prompt.size() - 1, {.logprob = -2, .rank = 1, .top = {{kA, -2}}});
  std::string out;
  for (size_t choice : {0, 1}) {
    out += asked.Token(first, choice);
    out += asked.EndChoice(EndReason::kLength, choice);
  }
  out += asked.answer->OnEnd();
  const auto check = [&](const std::string& text) {
    const json::value answer = json::parse(text);
    const json::array& list = answer.at("prompt_logprobs").as_array();
    REQUIRE(list.size() == prompt.size());
    CHECK(list[0].is_null());
    for (size_t i = 1; i < list.size(); ++i)
      CHECK(list[i].as_object().contains(absl::StrCat(prompt[i])));
  };
  if (!stream) return check(out);
  const std::vector<std::string> events = Events(out);
  check(events[0]);
  for (size_t i = 1; i < events.size(); ++i)
    CHECK(events[i].find("prompt_logprobs") == std::string::npos);
}

constexpr const char* kToldTokens = R"("tokens":["a","b","c"])";
constexpr const char* kLogprobs = R"("token_logprobs":[null,-3.0,-0.125])";

TEST_CASE("echo with logprobs: the prompt's tokens first, each with its own") {
  Asked asked(absl::StrCat(R"({"prompt":)", kPrompt, R"(,"echo":true,"logprobs":1})"));
  asked.Token(First(kB));
  const std::string text = asked.End(EndReason::kLength);
  const json::value choice = json::parse(text).at("choices").at(0);
  CHECK(choice.at("text") == "abcb");
  CHECK(json::serialize(choice.at("logprobs")) ==
        json::serialize(
            json::parse(R"({"tokens":["a","b","c","b"],"token_logprobs":[null,-3.0,-0.125,-0.25],)"
                        R"("top_logprobs":[null,{"c":-0.5,"b":-3.0},{"c":-0.125},{"b":-0.25}],)"
                        R"("text_offset":[0,1,2,3]})")));
  CHECK_FALSE(choice.as_object().contains("prompt_logprobs"));
}

TEST_CASE("a stream tells the prompt's text and tokens first, and tells them once") {
  Asked asked(absl::StrCat(R"({"prompt":)", kPrompt,
                           R"(,"echo":true,"logprobs":0,"prompt_logprobs":0,"stream":true})"));
  std::string out = asked.Token(First(kB));
  out += asked.End(EndReason::kLength);
  const std::vector<std::string> events = ShortEvents(out);
  REQUIRE(events.size() == 4);
  CHECK(events[0].find(R"("text":"abc","logprobs":{"tokens":["a","b","c"])") != std::string::npos);
  CHECK(events[0].find("prompt_logprobs") != std::string::npos);
  const json::value second = json::parse(events[1]).at("choices").at(0);
  CHECK(second.at("text") == "b");
  CHECK(json::serialize(second.at("logprobs").at("tokens")) == R"(["b"])");
  CHECK(json::serialize(second.at("logprobs").at("text_offset")) == "[3]");
  CHECK_FALSE(second.as_object().contains("prompt_logprobs"));
  CHECK(json::parse(events[2]).at("choices").at(0).at("logprobs").is_null());
}

TEST_CASE("a first choice that ends without a token keeps the others' events back no longer") {
  Asked asked(
      absl::StrCat(R"({"prompt":)", kPrompt, R"(,"n":3,"echo":true,"logprobs":0,"stream":true})"));
  CHECK(asked.Token(kB, 1).empty());
  CHECK(asked.EndChoice(EndReason::kLength, 1).empty());
  CHECK(asked.Token(kC, 2).empty());
  std::string out = asked.EndChoice(EndReason::kLength, 0);
  out += asked.EndChoice(EndReason::kLength, 2);
  out += asked.answer->OnEnd();
  std::map<int64_t, std::string> texts;
  std::map<int64_t, int> n_ends;
  for (const std::string& event : Events(out)) {
    if (event == "[DONE]") continue;
    const json::value choice = json::parse(event).at("choices").at(0);
    const int64_t index = choice.at("index").as_int64();
    texts[index] += std::string(choice.at("text").as_string());
    n_ends[index] += !choice.at("finish_reason").is_null();
  }
  CHECK(texts == std::map<int64_t, std::string>{{0, "abc"}, {1, "abcb"}, {2, "abcc"}});
  CHECK(n_ends == std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}});
}

TEST_CASE("offsets count characters, also where a character has several tokens") {
  Asked asked(R"({"prompt":"é東 a","echo":true,"logprobs":0,"max_tokens":0})");
  const std::vector<int32_t>& prompt = asked.prompts.front().generate.prompt;
  EmitToken first = First(kB);
  first.prompt_logprobs.assign(prompt.size() - 1, {.logprob = -1, .rank = 1});
  asked.Token(first);
  const json::value logprobs =
      json::parse(asked.End(EndReason::kLength)).at("choices").at(0).at("logprobs");
  const json::array& offsets = logprobs.at("text_offset").as_array();
  REQUIRE(offsets.size() == prompt.size());
  CHECK(offsets[0] == 0);
  CHECK(offsets.back() == 2);
  for (size_t i = 1; i < offsets.size(); ++i)
    CHECK(offsets[i].as_int64() >= offsets[i - 1].as_int64());
}

TEST_CASE("offsets are places in the text that is told, whatever the client spelled") {
  const bool skips = GENERATE(true, false);
  CAPTURE(skips);
  Asked asked(absl::StrCat(R"({"prompt":"<|im_start|>ab<|im_end|>c","echo":true,"logprobs":0,)",
                           R"("max_tokens":0,"skip_special_tokens":)", skips ? "true}" : "false}"));
  EmitToken first = First(kB);
  first.prompt_logprobs.assign(asked.prompts.front().generate.prompt.size() - 1, {.logprob = -1});
  asked.Token(first);
  const json::value choice = json::parse(asked.End(EndReason::kLength)).at("choices").at(0);
  const std::string text(choice.at("text").as_string());
  CHECK(text == (skips ? "abc" : "<|im_start|>ab<|im_end|>c"));
  const json::array& tokens = choice.at("logprobs").at("tokens").as_array();
  std::string joined;
  for (size_t i = 0; i < tokens.size(); ++i) {
    CHECK(choice.at("logprobs").at("text_offset").at(i) == joined.size());
    joined += std::string(tokens[i].as_string());
  }
  CHECK(joined == text);
}

TEST_CASE("max_tokens 0: the prompt alone, and nothing is told as generated") {
  const bool stream = GENERATE(false, true);
  CAPTURE(stream);
  Asked asked(absl::StrCat(R"({"prompt":)", kPrompt, R"(,"echo":true,"logprobs":0,"max_tokens":0,)",
                           R"("temperature":0.7,"stop":"x","response_format":)",
                           R"({"type":"json_object"},"return_token_ids":true,"stream":)",
                           stream ? "true" : "false", "}"));
  const GenerateRequest& generate = asked.prompts.front().generate;
  CHECK(generate.max_tokens == 1);
  CHECK(generate.stop_tokens.empty());
  CHECK(generate.sampling.grammar.kind == GrammarKind::kNone);
  CHECK(generate.prompt_logprobs == 0);
  std::string out = asked.Token(First(kB));
  CHECK(out.empty());
  out += asked.End(EndReason::kLength);
  CHECK(asked.answer->n_tokens() == 0);
  if (stream) {
    const std::vector<std::string> events = ShortEvents(out);
    REQUIRE(events.size() == 3);
    CHECK(events[0].find(kToldTokens) != std::string::npos);
    CHECK(out.find(kLogprobs) != std::string::npos);
    CHECK(events[1].find(R"("text":"","logprobs":null,"finish_reason":"length")") !=
          std::string::npos);
    return;
  }
  const json::value answer = json::parse(out), choice = answer.at("choices").at(0);
  CHECK(choice.at("text") == "abc");
  CHECK(choice.at("finish_reason") == "length");
  CHECK(choice.at("token_ids").as_array().empty());
  CHECK(out.find(kToldTokens) != std::string::npos);
  CHECK(out.find(kLogprobs) != std::string::npos);
  CHECK(answer.at("usage").at("completion_tokens") == 0);
  CHECK(answer.at("usage").at("prompt_tokens") == 3);
}

TEST_CASE("max_tokens 0 with the best of several, a prompt of one token, and minus infinity") {
  Asked best(R"({"prompt":[5],"max_tokens":0,"prompt_logprobs":3,"n":1,"best_of":3})");
  EmitToken first = First(kB);
  first.prompt_logprobs.clear();
  for (size_t choice : {0, 1, 2}) {
    best.Token(first, choice);
    best.EndChoice(EndReason::kLength, choice);
  }
  const json::value one = json::parse(best.answer->OnEnd());
  REQUIRE(one.at("choices").as_array().size() == 1);
  CHECK(json::serialize(one.at("choices").at(0).at("prompt_logprobs")) == "[null]");

  Asked asked(absl::StrCat(R"({"prompt":)", kPrompt, R"(,"max_tokens":0,"prompt_logprobs":0})"));
  first = First(kB);
  first.prompt_logprobs[0].logprob = -std::numeric_limits<float>::infinity();
  asked.Token(first);
  CHECK(asked.End(EndReason::kLength).find(R"("logprob":-9999.0)") != std::string::npos);
}

TEST_CASE("log-probabilities of all prompts and choices together are bounded") {
  const auto refusal = [](const std::string& fields, size_t n_tokens) {
    ApiRequest request;
    const std::vector<int32_t> prompt(n_tokens, 5);
    REQUIRE_FALSE(ParseApiRequest(
        Endpoint::kCompletions,
        absl::StrCat(R"({"prompt":[)", absl::StrJoin(prompt, ","), "],", fields, "}"), &request));
    std::vector<PreparedPrompt> prompts;
    return PreparePrompts(Demo(), request, 0, TextMoment{}, &prompts);
  };
  constexpr size_t kTokens = 2000;  // 8 choices of 2,000 tokens: 16 entries of each are the bound
  CHECK_FALSE(refusal(R"("n":8,"prompt_logprobs":15)", kTokens));
  const auto error = refusal(R"("n":8,"prompt_logprobs":16)", kTokens);
  REQUIRE(error);
  CHECK(error->status == 400);
  CHECK(error->param == "prompt_logprobs");
  CHECK(error->message.find("262144") != std::string::npos);
  const auto echoed = refusal(R"("n":8,"echo":true,"logprobs":20)", kTokens);
  REQUIRE(echoed);
  CHECK(echoed->param == "logprobs");
}

}  // namespace
}  // namespace baton
