// The demo model answers its evaluation prompts through the whole product: HTTP, chat template,
// tokenizer, router, prefill workers, handoff over UCX, decode worker, detokenizer. A wrong KV
// cache shows up as a wrong answer. The stated accuracy of the prompts with an expected answer is
// in models/demo/README.md. Tokens and logits are those of one local engine.

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/load_backend.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/eval_prompts.h"
#include "tests/support/sequential_run.h"

namespace baton {
namespace {

const std::vector<int32_t> kEndTokens = {0, 2};

struct ChatPrompt {
  std::string id, body, expected;
  bool correct_in_reference = false;
  std::string Category() const { return id.substr(0, id.rfind('-')); }
};

std::string BodyOf(const boost::json::value& messages, const boost::json::value* tools) {
  boost::json::object body{{"messages", messages}, {"temperature", 0}, {"max_tokens", 400}};
  if (tools != nullptr && !tools->is_null()) body["tools"] = *tools;
  return boost::json::serialize(body);
}

std::vector<ChatPrompt> ReadPrompts() {
  std::istringstream lines(ReadGzip(BATON_SOURCE_DIR "/models/demo/eval.jsonl.gz"));
  std::vector<ChatPrompt> prompts;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::object object = boost::json::parse(line).as_object();
    if (!object.at("expected").is_string()) continue;  // stories have no single answer
    prompts.push_back({std::string(object.at("id").as_string()),
                       BodyOf(object.at("messages"), object.if_contains("tools")),
                       std::string(object.at("expected").as_string()),
                       object.at("correct_fp32").as_bool()});
  }
  return prompts;
}

// Sums of one- and two-digit numbers in any mix, spread over all pairs, asked as users do.
std::vector<ChatPrompt> Sums() {
  std::vector<ChatPrompt> prompts;
  for (int i = 0; i < 200; ++i) {
    const int a = i * 37 % 100;
    const int b = i % 2 == 0 ? (i * 61 + 13) % 100 : i % 10;
    const std::string sum = absl::StrCat(a, " + ", b);
    prompts.push_back({absl::StrCat("sum-", i),
                       BodyOf({{{"role", "user"}, {"content", "What is " + sum + "?"}}}, nullptr),
                       absl::StrCat(sum, " = ", a + b, ".")});
  }
  return prompts;
}

struct Score {
  int n = 0, correct = 0, in_reference = 0;
};

double Percent(const Score& score) { return 100.0 * score.correct / score.n; }

// The text that the model wrote: calls of tools come apart from it.
std::string TextOf(const boost::json::object& message) {
  std::string text;
  if (!message.at("content").is_null()) text = std::string(message.at("content").as_string());
  if (!message.contains("tool_calls")) return text;
  for (const boost::json::value& call : message.at("tool_calls").as_array()) {
    const boost::json::value& function = call.at("function");
    absl::StrAppend(&text, text.empty() ? "" : "\n", "<tool_call>\n{\"name\": \"",
                    std::string(function.at("name").as_string()),
                    "\", \"arguments\": ", std::string(function.at("arguments").as_string()),
                    "}\n</tool_call>");
  }
  return text;
}

std::string Answer(const HttpClient& client, const ChatPrompt& prompt) {
  const absl::StatusOr<HttpResponse> response = client.Post("/v1/chat/completions", prompt.body);
  if (!response.ok()) return "error: " + std::string(response.status().message());
  if (response->status != 200) return "error: " + response->body;
  const boost::json::value value = boost::json::parse(response->body);
  return TextOf(value.at("choices").at(0).at("message").as_object());
}

// Asks all prompts, eight at a time.
std::vector<std::string> Answers(const HttpClient& client, const std::vector<ChatPrompt>& prompts) {
  std::vector<std::string> answers(prompts.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      for (size_t at = next++; at < prompts.size(); at = next++) {
        answers[at] = Answer(client, prompts[at]);
      }
    });
  }
  for (std::thread& one : clients) one.join();
  return answers;
}

// Token ids of an answer, each with the digest of its logits.
std::string TokensOf(const HttpClient& client, const std::string& chat) {
  boost::json::object body = boost::json::parse(chat).as_object();
  body["return_token_ids"] = true;
  body["baton_digest"] = true;
  const auto response = client.Post("/v1/chat/completions", boost::json::serialize(body));
  if (!response.ok() || response->status != 200) return "no answer";
  const boost::json::value answer = boost::json::parse(response->body);
  const boost::json::value& choice = answer.at("choices").at(0);
  const boost::json::array& ids = choice.at("token_ids").as_array();
  const boost::json::array& digests = choice.at("baton_digests").as_array();
  if (ids.size() != digests.size()) return "ids without digests";
  std::string tokens;
  for (size_t i = 0; i < ids.size(); ++i)
    absl::StrAppend(&tokens, ids[i].as_int64(), ":", std::string(digests[i].as_string()), " ");
  return tokens;
}

TEST_CASE("every eighth evaluation prompt has the tokens and logits of a local bf16 engine") {
  const auto served = ServedBaton::Start({"--demo"});
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  const std::vector<ChatPrompt> chats = ReadPrompts();
  const std::vector<EvalPrompt> prompts = ReadEvalPrompts();
  REQUIRE(chats.size() == prompts.size());
  EngineOptions options;
  options.model = BATON_SOURCE_DIR "/models/demo";
  options.dtype = "bf16";
  options.threads = 2;
  options.limits.max_step_tokens = 4096;
  const auto local = LoadBackend(options);
  REQUIRE(local.ok());
  for (size_t i = 0; i < prompts.size(); i += 8) {
    INFO(prompts[i].id);
    const SequentialTokens expected =
        SequentialRun(local->get(), prompts[i].prompt, 400, {.temperature = 0}, kEndTokens);
    std::string tokens;
    for (size_t t = 0; t < expected.tokens.size(); ++t)
      absl::StrAppend(&tokens, expected.tokens[t], ":",
                      absl::StrFormat("%016x", expected.digests[t]), " ");
    CHECK(TokensOf((*served)->client(), chats[i].body) == tokens);
  }
  CHECK((*served)->Terminate().value() == 0);
}

TEST_CASE("the demo model's answers are right through the whole disaggregated path") {
  std::vector<ChatPrompt> prompts = ReadPrompts();
  REQUIRE(prompts.size() == 970);
  auto served = ServedBaton::Start({"--demo"});
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  const std::vector<ChatPrompt> sums = Sums();
  const std::vector<std::string> answers = Answers(client, prompts);
  const std::vector<std::string> results = Answers(client, sums);

  std::map<std::string, Score> categories;
  Score all, small_sums;
  int printed = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool correct = answers[i] == prompts[i].expected;
    for (Score* score : {&all, &categories[prompts[i].Category()]}) {
      ++score->n;
      score->correct += correct ? 1 : 0;
      score->in_reference += prompts[i].correct_in_reference ? 1 : 0;
    }
    if (!correct && prompts[i].correct_in_reference && printed++ < 10) {
      std::cout << prompts[i].id << ": expected <" << prompts[i].expected << "> got <" << answers[i]
                << ">\n";
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    ++small_sums.n;
    small_sums.correct += results[i] == sums[i].expected ? 1 : 0;
    if (results[i] != sums[i].expected) std::cout << "a wrong sum: " << results[i] << "\n";
  }
  std::cout << "evaluation: " << Percent(all) << " % right, reference "
            << 100.0 * all.in_reference / all.n << " %; sums of one- and two-digit numbers "
            << Percent(small_sums) << " %\n";
  CHECK(Percent(all) >= 98.5);
  CHECK(all.correct >= all.in_reference - 5);
  CHECK(Percent(small_sums) >= 99);
  // A category may lose what a near tie loses.
  for (const auto& [category, score] : categories) {
    INFO(category << ": " << score.correct << " of " << score.n);
    CHECK(score.correct >= score.in_reference - 1);
  }

  const absl::StatusOr<int> status = (*served)->Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);
}

}  // namespace
}  // namespace baton
