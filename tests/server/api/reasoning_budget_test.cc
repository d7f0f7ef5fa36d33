// thinking_token_budget and thinking.budget_tokens, from the body to the sampler's parameters.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "server/api/messages_answer.h"
#include "server/api/model_text.h"
#include "tests/server/api/asked_answer.h"

namespace baton {
namespace {

// The demo model, as if its template knew of reasoning and its tokenizer of the tags; opened: the
// prompt begins it.
std::unique_ptr<ServedModel> Reasoner(bool opened) {
  auto model = LoadDemo();
  model->answer_format.reasoning = ReasoningFormat::kThinkTags;
  model->tokenizer = *LoadTokenizer(BATON_SOURCE_DIR "/tests/data/tokenizers/qwen2");
  model->chat_template = *ChatTemplate::FromSource(
      absl::StrCat("{{ messages[0].content }}", opened ? "<think>\n" : ""), "");
  return model;
}

struct Prepared {
  std::optional<ApiError> error;
  ReasoningBudget reasoning;
};

Prepared Prepare(const ServedModel& model, const std::string& field,
                 Endpoint endpoint = Endpoint::kChat) {
  ApiRequest request;
  const std::string body =
      absl::StrCat(R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}],)", field, "}");
  Prepared prepared;
  prepared.error = ParseApiRequest(endpoint, body, &request);
  std::vector<PreparedPrompt> prompts;
  if (!prepared.error) prepared.error = PreparePrompts(model, request, 0, {}, &prompts);
  if (!prepared.error) prepared.reasoning = prompts.at(0).generate.sampling.reasoning;
  return prepared;
}

}  // namespace

TEST_CASE("thinking_token_budget becomes a bound with the model's markers") {
  const int32_t begin = *Reasoner(true)->tokenizer->IdOf("<think>");
  const int32_t end = *Reasoner(true)->tokenizer->IdOf("</think>");
  for (const int budget : {0, 5}) {
    const std::string field = absl::StrCat(R"("thinking_token_budget":)", budget);
    const Prepared opened = Prepare(*Reasoner(true), field);
    REQUIRE_FALSE(opened.error);
    CHECK(opened.reasoning == ReasoningBudget{.max_tokens = budget, .end = end});
    const Prepared unopened = Prepare(*Reasoner(false), field);
    REQUIRE_FALSE(unopened.error);
    CHECK(unopened.reasoning == ReasoningBudget{.max_tokens = budget, .begin = begin, .end = end});
  }
  CHECK(Prepare(*Reasoner(true), R"("thinking_token_budget":null)").reasoning == ReasoningBudget());
}

TEST_CASE("reasoning that is told as content is bounded as well") {
  for (const char* joined : {R"("separate_reasoning":false)", R"("reasoning_format":"none")"}) {
    INFO(joined);
    const std::string fields = absl::StrCat(R"("thinking_token_budget":5,)", joined);
    const int32_t begin = *Reasoner(true)->tokenizer->IdOf("<think>");
    CHECK(Prepare(*Reasoner(true), fields).reasoning.begin == -1);
    CHECK(Prepare(*Reasoner(true), fields).reasoning.is_set());
    CHECK(Prepare(*Reasoner(false), fields).reasoning.begin == begin);
    const Prepared held =
        Prepare(*Reasoner(true), fields + R"(,"response_format":{"type":"json_object"})");
    REQUIRE(held.error);
    CHECK(held.error->param == "thinking_token_budget");
    CHECK(held.error->message.find("separate_reasoning") != std::string::npos);
  }
  const Prepared beside = Prepare(
      *Reasoner(true), R"("thinking_token_budget":5,"response_format":{"type":"json_object"})");
  CHECK_FALSE(beside.error);
  CHECK(beside.reasoning.is_set());
}

TEST_CASE("a budget bounds the reasoning of an answer that goes on inside it") {
  const auto goes_on = [](const std::string& text) {
    ApiRequest request;
    const std::string body = absl::StrCat(
        R"({"messages":[{"role":"user","content":"<think>"},{"role":"assistant","content":")", text,
        R"("}],"continue_final_message":true,"thinking_token_budget":5})");
    REQUIRE_FALSE(ParseApiRequest(Endpoint::kChat, body, &request));
    const auto model = Reasoner(false);
    model->chat_template = *ChatTemplate::FromSource(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", "");
    std::vector<PreparedPrompt> prompts;
    REQUIRE_FALSE(PreparePrompts(*model, request, 0, {}, &prompts));
    const bool is_inside = prompts[0].inside_reasoning;
    CHECK((prompts[0].generate.sampling.reasoning.begin == -1) == is_inside);
    return is_inside;
  };
  CHECK(goes_on("<think> Hm"));
  CHECK_FALSE(goes_on("Hm"));
  CHECK_FALSE(goes_on("<think> Hm </think> So"));
}

TEST_CASE("a budget for reasoning that cannot be is refused by name") {
  const std::string five = R"("thinking_token_budget":5)";
  const Prepared without = Prepare(Demo(), five);
  REQUIRE(without.error);
  CHECK(without.error->status == 400);
  CHECK(without.error->param == "thinking_token_budget");
  CHECK(without.error->message.find("no marker that ends reasoning") != std::string::npos);
  const Prepared off =
      Prepare(*Reasoner(true), five + R"(,"chat_template_kwargs": {"enable_thinking": false})");
  REQUIRE(off.error);
  CHECK(off.error->param == "thinking_token_budget");
  CHECK_FALSE(Prepare(*Reasoner(true),
                      five + R"(,"chat_template_kwargs": {"notes": {"enable_thinking": false}})")
                  .error);
  const auto spelled = Reasoner(true);  // its markers are several tokens
  spelled->tokenizer = std::move(LoadDemo()->tokenizer);
  const Prepared in_pieces = Prepare(*spelled, five);
  REQUIRE(in_pieces.error);
  CHECK(in_pieces.error->param == "thinking_token_budget");
  CHECK(in_pieces.error->message.find("no single tokens") != std::string::npos);
  CHECK_FALSE(
      Prepare(*spelled, R"("thinking":{"type":"enabled","budget_tokens":9})", Endpoint::kMessages)
          .error);
  for (const char* bad : {"-1", "1.5", R"("5")", "1e12"}) {
    INFO(bad);
    const Prepared refused =
        Prepare(*Reasoner(true), absl::StrCat(R"("thinking_token_budget":)", bad));
    REQUIRE(refused.error);
    CHECK(refused.error->param == "thinking_token_budget");
  }
}

TEST_CASE("thinking.budget_tokens of /v1/messages is the same bound") {
  const auto thinking = [](const std::string& members) {
    return absl::StrCat(R"("thinking":{"type":)", members, "}");
  };
  const std::string enabled = thinking(R"("enabled","budget_tokens":1024)");
  CHECK(Prepare(*Reasoner(true), enabled, Endpoint::kMessages).reasoning ==
        ReasoningBudget{.max_tokens = 1024, .end = *Reasoner(true)->tokenizer->IdOf("</think>")});
  for (const char* none :
       {R"("enabled")", R"("disabled")", R"("adaptive")", R"("enabled","budget_tokens":null)"}) {
    const Prepared prepared = Prepare(*Reasoner(true), thinking(none), Endpoint::kMessages);
    CHECK_FALSE(prepared.error);
    CHECK(prepared.reasoning == ReasoningBudget());
  }
  // A model without reasoning keeps within any budget.
  const Prepared without = Prepare(Demo(), enabled, Endpoint::kMessages);
  CHECK_FALSE(without.error);
  CHECK(without.reasoning == ReasoningBudget());
  const Prepared bad =
      Prepare(*Reasoner(true), thinking(R"("enabled","budget_tokens":0)"), Endpoint::kMessages);
  REQUIRE(bad.error);
  CHECK(bad.error->param == "thinking.budget_tokens");
}

}  // namespace baton
