// Answers that call tools and reason, as the chat tells them: whole and streamed say the same, each
// choice has one finish reason, and log-probabilities stay with their tokens.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/server/api/asked_answer.h"
#include "tests/text/tools/random_answer.h"

namespace baton {
namespace {

namespace json = boost::json;

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"sum","parameters":{"type":"object"}}},)"
    R"({"type":"function","function":{"name":"now"}}])";
const std::string kCalls =
    "I will look.\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of\": [1, 2], \"as\": "
    "\"</tool_call> }\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
    "{}}\n</tool_call>";

std::string Body(const std::string& more = "") {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"hi"}],)", kTools, more, "}");
}

// An answer as a client has put it together.
struct Heard {
  std::string content, reasoning;
  std::vector<std::string> calls;  // "ID NAME ARGUMENTS"
  std::vector<std::string> finishes;
  size_t n_logprobs = 0;
};

Heard Listen(const std::string& stream) {
  Heard heard;
  for (const std::string& payload : Events(stream)) {
    if (payload == "[DONE]") continue;
    const json::value event = json::parse(payload);
    const json::value& choice = event.at("choices").at(0);
    const json::object& delta = choice.at("delta").as_object();
    const auto text = [&](const char* key) {
      const json::value* value = delta.if_contains(key);
      return value == nullptr ? "" : std::string(value->as_string());
    };
    heard.content += text("content");
    CHECK(text("reasoning") == text("reasoning_content"));
    heard.reasoning += text("reasoning");
    if (const json::value* calls = delta.if_contains("tool_calls")) {
      for (const json::value& call : calls->as_array()) {
        const auto index = static_cast<size_t>(call.at("index").as_int64());
        const json::object& function = call.at("function").as_object();
        if (function.contains("name")) {
          REQUIRE(heard.calls.size() == index);
          heard.calls.push_back(absl::StrCat(std::string(call.at("id").as_string()), " ",
                                             std::string(function.at("name").as_string()), " "));
        }
        REQUIRE(index + 1 == heard.calls.size());
        heard.calls[index] += std::string(function.at("arguments").as_string());
      }
    }
    if (!choice.at("logprobs").is_null())
      heard.n_logprobs += choice.at("logprobs").at("content").as_array().size();
    if (!choice.at("finish_reason").is_null())
      heard.finishes.emplace_back(choice.at("finish_reason").as_string());
  }
  return heard;
}

Heard Whole(const std::string& body) {
  const json::value choice = json::parse(body).at("choices").at(0);
  const json::object& message = choice.at("message").as_object();
  Heard heard;
  if (!message.at("content").is_null())
    heard.content = std::string(message.at("content").as_string());
  if (const json::value* reasoning = message.if_contains("reasoning"))
    heard.reasoning = std::string(reasoning->as_string());
  if (const json::value* calls = message.if_contains("tool_calls")) {
    for (const json::value& call : calls->as_array()) {
      CHECK(call.at("type") == "function");
      heard.calls.push_back(
          absl::StrCat(std::string(call.at("id").as_string()), " ",
                       std::string(call.at("function").at("name").as_string()), " ",
                       std::string(call.at("function").at("arguments").as_string())));
    }
  }
  heard.finishes = {std::string(choice.at("finish_reason").as_string())};
  if (!choice.at("logprobs").is_null())
    heard.n_logprobs = choice.at("logprobs").at("content").as_array().size();
  return heard;
}

// The answer to `body` of a model that writes `text`, whole and streamed, which must say the same.
Heard Hear(const std::string& more, const std::string& text, const ServedModel& model = Demo()) {
  const std::vector<int32_t> ids = Ids(text);
  AskedAnswer whole(Body(more), Endpoint::kChat, nullptr, model);
  AskedAnswer streamed(Body(more + ",\"stream\":true"), Endpoint::kChat, nullptr, model);
  std::string stream;
  for (const int32_t id : ids) {
    CHECK(whole.Token(id).empty());
    stream += streamed.Token(id);
  }
  whole.Token(Demo().eos_tokens[0]);
  stream += streamed.Token(Demo().eos_tokens[0]);
  const Heard heard = Whole(whole.End(EndReason::kStopToken));
  const Heard listened = Listen(stream + streamed.End(EndReason::kStopToken));
  CHECK(listened.content == heard.content);
  CHECK(listened.reasoning == heard.reasoning);
  CHECK(listened.calls == heard.calls);
  CHECK(listened.finishes == heard.finishes);
  CHECK(listened.n_logprobs == heard.n_logprobs);
  return heard;
}

TEST_CASE("calls are told as calls, with the text before them") {
  REQUIRE(Demo().answer_format.tools == ToolFormat::kHermes);
  const Heard heard = Hear("", kCalls);
  CHECK(heard.content == "I will look.");
  REQUIRE(heard.calls.size() == 2);
  CHECK(heard.calls[0].substr(9) == R"( sum {"of": [1, 2], "as": "</tool_call> }"})");
  CHECK(heard.calls[1].substr(9) == " now {}");
  CHECK(heard.calls[0].substr(0, 9) != heard.calls[1].substr(0, 9));
  CHECK(heard.finishes == std::vector<std::string>{"tool_calls"});
}

TEST_CASE("300 drawn answers of each family: what streams, joined, is the whole", "[slow]") {
  const std::unique_ptr<ServedModel> model = LoadDemo();
  for (const AnswerFormat& format :
       {AnswerFormat{ToolFormat::kLlama3, ReasoningFormat::kNone},
        AnswerFormat{ToolFormat::kHermes, ReasoningFormat::kThinkTags},
        AnswerFormat{ToolFormat::kMistralList, ReasoningFormat::kNone},
        AnswerFormat{ToolFormat::kMistralNamed, ReasoningFormat::kThinkBrackets}}) {
    model->answer_format = format;
    random_answer::Maker maker(format, 20);
    int n_calls = 0;
    for (int n_answers = 0; n_answers < 300;) {
      const random_answer::Example example = maker.Make();
      if (example.inside_reasoning) continue;  // this model's prompts end outside
      ++n_answers;
      INFO(example.text);
      const Heard heard = Hear("", example.text, *model);
      CHECK(heard.content == example.answer.content);
      CHECK(heard.reasoning == example.answer.reasoning);
      REQUIRE(heard.calls.size() == example.answer.calls.size());
      for (size_t i = 0; i < heard.calls.size(); ++i) {
        const split_answer::Call& call = example.answer.calls[i];
        CHECK(heard.calls[i].substr(9) == absl::StrCat(" ", call.name, " ", call.arguments));
      }
      CHECK(heard.finishes ==
            std::vector<std::string>{heard.calls.empty() ? "stop" : "tool_calls"});
      n_calls += static_cast<int>(heard.calls.size());
    }
    CHECK(n_calls > 450);
  }
}

TEST_CASE("log-probabilities come once per token, also of markers and held text") {
  const Heard heard = Hear(R"(,"logprobs":true)", kCalls);
  CHECK(heard.n_logprobs == Ids(kCalls).size());
}

TEST_CASE("text that is no call is content, and its finish is stop") {
  const std::string text = "<tool_call> is a marker, {\"name\": 7} is none";
  const Heard heard = Hear("", text);
  CHECK(heard.content == text);
  CHECK(heard.calls.empty());
  CHECK(heard.finishes == std::vector<std::string>{"stop"});
  // Without tools nothing is a call.
  CHECK(Hear(R"(,"tool_choice":"none")", kCalls).content == kCalls);
  CHECK(Hear(R"(,"tool_choice":"none")", kCalls).calls.empty());
}

TEST_CASE("a named tool ends as stop, a cut call as length") {
  const Heard named = Hear(R"(,"tool_choice":{"type":"function","function":{"name":"now"}})",
                           "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  CHECK(named.finishes == std::vector<std::string>{"stop"});
  CHECK(named.calls.size() == 1);
  AskedAnswer cut(Body(), Endpoint::kChat);
  for (const int32_t id : Ids("<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"of\": [1"))
    cut.Token(id);
  const Heard heard = Whole(cut.End(EndReason::kLength));
  CHECK(heard.finishes == std::vector<std::string>{"length"});
  REQUIRE(heard.calls.size() == 1);
  CHECK(heard.calls[0].ends_with(R"(sum {"of": [1)"));
}

TEST_CASE("reasoning stands beside the content and is counted by the token") {
  const std::unique_ptr<ServedModel> model = LoadDemo();
  model->answer_format.reasoning = ReasoningFormat::kThinkTags;
  const std::string text = "<think>one and two</think>\n\nthree";
  const Heard heard = Hear("", text, *model);
  CHECK(heard.content == "three");
  CHECK(heard.reasoning == "one and two");
  CHECK(Hear(R"(,"include_reasoning":false)", text, *model).reasoning.empty());
  CHECK(Hear(R"(,"include_reasoning":false)", text, *model).content == "three");
  const Heard unsplit = Hear(R"(,"separate_reasoning":false)", text, *model);
  CHECK(unsplit.content == text);
  CHECK(Hear(R"(,"reasoning_format":"none")", text, *model).content == text);

  AskedAnswer counted(Body(), Endpoint::kChat, nullptr, *model);
  for (const int32_t id : Ids(text)) counted.Token(id);
  const json::value body = json::parse(counted.End(EndReason::kLength));
  const auto n = body.at("usage").at("completion_tokens_details").at("reasoning_tokens");
  const size_t n_thought = Ids("one and two").size();
  CHECK(n.to_number<size_t>() >= n_thought);
  CHECK(n.to_number<size_t>() <= n_thought + 2);  // a token may be part of a marker, too
}

TEST_CASE("what the request demands of calls is a grammar, and both together as well") {
  const auto grammar = [](const std::string& more) {
    AskedAnswer asked(Body(more), Endpoint::kChat);
    const GrammarSpec made = asked.prompts[0].generate.sampling.grammar;
    if (made.kind != GrammarKind::kNone) {
      const auto compiled = Demo().grammars->Compile(made);
      INFO(made.text << " " << compiled.status());
      CHECK(compiled.ok());
    }
    return made;
  };
  CHECK(grammar("").kind == GrammarKind::kNone);
  CHECK(grammar(R"(,"tool_choice":"auto")").kind == GrammarKind::kNone);
  std::set<std::string> texts;
  for (const char* more :
       {R"(,"tool_choice":"required")", R"(,"parallel_tool_calls":false)",
        R"(,"tool_choice":{"type":"function","function":{"name":"now"}})",
        R"(,"tool_choice":"required","parallel_tool_calls":false)",
        R"(,"response_format":{"type":"json_object"})", R"(,"regex":"[a-c]+")"}) {
    const GrammarSpec made = grammar(more);
    CHECK(made.kind == GrammarKind::kParts);
    CHECK(texts.insert(made.text).second);
  }
}

}  // namespace
}  // namespace baton
