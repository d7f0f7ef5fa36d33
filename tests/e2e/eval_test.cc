// The demo model answers its evaluation prompts through the whole product: HTTP, chat template,
// tokenizer, router, prefill workers, handoff over UCX, decode worker, detokenizer. A wrong KV
// cache shows up as a wrong answer. The stated accuracy of the prompts with an expected answer is
// in models/demo/README.md.

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/support/eval_prompts.h"

namespace baton {
namespace {

struct ChatPrompt {
  std::string id, body, expected;
  bool correct_in_reference = false;
};

std::vector<ChatPrompt> ReadPrompts() {
  std::istringstream lines(ReadGzip(BATON_SOURCE_DIR "/models/demo/eval.jsonl.gz"));
  std::vector<ChatPrompt> prompts;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::object object = boost::json::parse(line).as_object();
    if (!object.at("expected").is_string()) continue;  // stories have no single answer
    boost::json::object body{
        {"messages", object.at("messages")}, {"temperature", 0}, {"max_tokens", 400}};
    if (object.contains("tools") && !object.at("tools").is_null())
      body["tools"] = object.at("tools");
    prompts.push_back({std::string(object.at("id").as_string()), boost::json::serialize(body),
                       std::string(object.at("expected").as_string()),
                       object.at("correct_fp32").as_bool()});
  }
  return prompts;
}

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

TEST_CASE("the demo model's answers are right through the whole disaggregated path") {
  const std::vector<ChatPrompt> prompts = ReadPrompts();
  REQUIRE(prompts.size() == 850);
  auto served = ServedBaton::Start({"--demo"});
  INFO((served.ok() ? std::string() : std::string(served.status().message())));
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();

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

  int correct = 0, in_reference = 0, printed = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    in_reference += prompts[i].correct_in_reference ? 1 : 0;
    if (answers[i] == prompts[i].expected) {
      ++correct;
    } else if (prompts[i].correct_in_reference && printed++ < 10) {
      std::cout << prompts[i].id << ": expected <" << prompts[i].expected << "> got <" << answers[i]
                << ">\n";
    }
  }
  const double percent = 100.0 * correct / static_cast<double>(prompts.size());
  const double reference = 100.0 * in_reference / static_cast<double>(prompts.size());
  std::cout << "evaluation: " << percent << " % right, reference " << reference << " %\n";
  CHECK(percent >= reference - 1.0);

  const absl::StatusOr<int> status = (*served)->Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);
}

}  // namespace
}  // namespace baton
