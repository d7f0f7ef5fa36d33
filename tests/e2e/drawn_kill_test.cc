// Requests with parameters of the API, drawn together, to a real `baton serve` of a model that
// reasons, whose decode worker is killed at a random token: texts, ids, log-probabilities, finish
// reasons and counts of tokens are those without the kill. A slice runs in CI; "[.][kills]" is the
// command of docs/CONTRIBUTING.md.
#include <signal.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/reasoning_demo.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"

namespace baton {
namespace {

namespace json = boost::json;

struct Request {
  std::string path, body;
};

// How many of the requests have each parameter.
using Counts = std::map<std::string, int>;

class RequestMaker {
 public:
  RequestMaker(uint64_t seed, Counts* counts) : random_(seed), counts_(counts) {}

  Request Make() {
    const bool is_chat = Percent(50);
    std::string prompt = "Tell me a story about a duck";
    for (int n = Below(60); n > 0; --n) absl::StrAppend(&prompt, " and box ", Below(100));
    json::object body{
        {"stream", true},           {"max_tokens", 40 + Below(120)},
        {"ignore_eos", true},       {"temperature", Percent(30) ? 0 : Hundredths(20, 150)},
        {"seed", Below(1'000'000)}, {"return_token_ids", true}};
    if (is_chat) {
      body["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt}}};
    } else {
      body["prompt"] = prompt;
    }
    if (!is_chat && Percent(50)) {  // told whole, not streamed
      body["best_of"] = 3;
      body["stream"] = false;
    } else {
      body["stream_options"] = {{"include_usage", true}};
    }
    if (is_chat && Percent(75)) body["thinking_token_budget"] = Below(30);
    if (is_chat && Percent(50)) body["include_reasoning"] = false;
    AddSampling(&body);
    AddLists(is_chat, &body);
    if (is_chat) {
      AddCalls(&body);
    } else {
      AddConstraint(&body);
    }
    for (const auto& member : body) ++(*counts_)[std::string(member.key())];
    return {is_chat ? "/v1/chat/completions" : "/v1/completions", json::serialize(body)};
  }

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

 private:
  void AddSampling(json::object* body) {
    if (Percent(33)) (*body)["top_k"] = 1 + Below(200);
    if (Percent(33)) (*body)["top_p"] = Hundredths(10, 100);
    if (Percent(33)) (*body)["min_p"] = Hundredths(0, 50);
    if (Percent(33)) (*body)["presence_penalty"] = Hundredths(-200, 200);
    if (Percent(33)) (*body)["frequency_penalty"] = Hundredths(-200, 200);
    if (Percent(33)) (*body)["repetition_penalty"] = Hundredths(50, 200);
    if (Percent(33)) (*body)["n"] = 2;
    if (Percent(33)) (*body)["truncate_prompt_tokens"] = 20 + Below(60);
    if (Percent(33)) (*body)["bad_words"] = json::array{"duck", " the", "box 7"};
    if (Percent(33)) (*body)["stream_interval"] = 1 + Below(9);
    if (Percent(33)) (*body)["cache_salt"] = absl::StrCat("tenant ", Below(3));
    if (!Percent(33)) return;
    json::object bias;
    for (int n = 1 + Below(5); n > 0; --n) bias[absl::StrCat(256 + Below(1500))] = Below(101) - 50;
    (*body)["logit_bias"] = bias;
  }

  void AddLists(bool is_chat, json::object* body) {
    if (Percent(33)) (*body)["prompt_logprobs"] = Below(4);
    if (!is_chat && Percent(60)) (*body)["echo"] = true;
    if (Percent(33)) (*body)["return_tokens_as_token_ids"] = true;
    if (!Percent(60)) return;
    (*body)["logprobs"] = is_chat ? json::value(true) : json::value(Below(6));
    if (is_chat) (*body)["top_logprobs"] = Below(6);
    if (!body->contains("echo") && Percent(65))
      (*body)["logprob_token_ids"] = json::array{300, 400, 500};
  }

  // With min_tokens, beside a text that is long enough for them.
  void AddConstraint(json::object* body) {
    if (Percent(60)) (*body)["min_tokens"] = Below(20);
    if (Percent(50)) {
      (*body)["structured_outputs"] = json::object{{"regex", "([a-z]{2,8} ){8,20}[A-Z]{3}"}};
    } else {
      json::array ids;
      for (int id = 0; id < 1200; ++id) ids.push_back(id);
      (*body)["allowed_token_ids"] = ids;
    }
  }

  // Compact JSON: the small model would fill its answers with white space.
  void AddCalls(json::object* body) {
    const json::value schema =
        json::parse(R"({"x-guidance":{"whitespace_flexible":false},"type":"object","properties":)"
                    R"({"city":{"type":"string","maxLength":40},"day":{"type":"integer"}},)"
                    R"("required":["city","day"],"additionalProperties":false})");
    if (Percent(50)) {
      (*body)["response_format"] = {
          {"type", "json_schema"},
          {"json_schema", {{"name", "a"}, {"strict", true}, {"schema", schema}}}};
      return;
    }
    json::array tools;
    for (const char* name : {"weather", "tides"}) {
      tools.push_back({{"type", "function"},
                       {"function", {{"name", name}, {"strict", true}, {"parameters", schema}}}});
    }
    (*body)["tools"] = tools;
    if (Percent(70)) {
      (*body)["tool_choice"] = "required";
    } else {
      (*body)["tool_choice"] = {{"type", "function"}, {"function", {{"name", "tides"}}}};
    }
  }

  bool Percent(int share) { return Below(100) < share; }
  double Hundredths(int min, int max) { return (min + Below(max - min + 1)) / 100.0; }

  std::mt19937_64 random_;
  Counts* counts_;
};

// Joins what an answer brought, whole or by events: per choice its texts, ids, lists and reasons of
// its end, and how many tokens there were, of prompt, answer and reasoning.
struct Answer {
  std::map<std::string, std::string> texts;  // by choice and member
  std::string error;
  bool operator==(const Answer&) const = default;

  void Add(const json::value& chunk) {
    if (chunk.as_object().contains("error")) error = json::serialize(chunk);
    if (!chunk.as_object().contains("choices")) return;
    Join(chunk, "prompt_logprobs", "");
    Join(chunk, "prompt_token_ids", "");
    AddUsage(chunk);
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const std::string index = absl::StrCat(choice.at("index").as_int64(), " ");
      for (const char* member :
           {"text", "finish_reason", "stop_reason", "prompt_logprobs", "prompt_token_ids"})
        Join(choice, member, index);
      if (const json::value* delta = choice.as_object().if_contains("delta")) {
        Join(*delta, "content", index);
        Join(*delta, "reasoning_content", index);
        AddCalls(*delta, index);
      }
      if (const json::value* ids = choice.as_object().if_contains("token_ids"))
        for (const json::value& id : ids->as_array())
          absl::StrAppend(&texts[index + "token_ids"], id.as_int64(), " ");
      const json::value* told = choice.as_object().if_contains("logprobs");
      if (told == nullptr || told->is_null()) continue;
      // A chunk's lists are parts of the whole answer's, which are as long whatever the chunks.
      for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "content"}) {
        const json::value* values = told->as_object().if_contains(list);
        if (values == nullptr || values->is_null()) continue;
        for (const json::value& value : values->as_array())
          texts[absl::StrCat(index, "logprobs ", list)] += json::serialize(value) + "\n";
      }
    }
  }

  void Join(const json::value& object, const char* member, const std::string& index) {
    const json::value* value = object.as_object().if_contains(member);
    if (value == nullptr || value->is_null()) return;
    std::string& text = texts[index + member];
    text += value->is_string() ? std::string(value->as_string()) : json::serialize(*value);
  }

  // Tokens found in a cache are others' matter: the same request a second time finds more.
  void AddUsage(const json::value& chunk) {
    const json::value* usage = chunk.as_object().if_contains("usage");
    if (usage == nullptr || usage->is_null()) return;
    for (const char* member : {"prompt_tokens", "completion_tokens", "completion_tokens_details"})
      Join(*usage, member, "usage ");
  }

  void AddCalls(const json::value& delta, const std::string& index) {
    const json::value* calls = delta.as_object().if_contains("tool_calls");
    if (calls == nullptr) return;
    for (const json::value& call : calls->as_array()) {
      const std::string place = absl::StrCat(index, call.at("index").as_int64(), " ");
      Join(call.at("function"), "name", place);
      Join(call.at("function"), "arguments", place);
    }
  }
};

Answer Ask(const HttpClient& client, const Request& request,
           const std::function<void()>& on_chunk) {
  Answer answer;
  const auto response =
      client.Post(request.path, request.body, [&](std::string_view data, absl::Time) {
        if (data == "[DONE]") return false;
        answer.Add(json::parse(json::string_view(data.data(), data.size())));
        if (on_chunk) on_chunk();
        return true;
      });
  if (!response.ok()) answer.error = response.status().ToString();
  if (response.ok() && response->status != 200) answer.error = response->body;
  if (answer.error.empty() && !response->body.empty()) answer.Add(json::parse(response->body));
  return answer;
}

constexpr int kTogether = 10, kKills = 4;

struct Tally {
  Counts parameters;
  int n_requests = 0, n_midway = 0, n_different = 0;
  double n_failovers = 0;
};

// Lets requests run alone, then together, and kills `worker` at a random chunk of all together.
void RunRound(const HttpClient& client, pid_t worker, uint64_t seed, Tally* tally) {
  RequestMaker maker(seed, &tally->parameters);
  std::vector<Request> requests;
  for (int i = 0; i < kTogether; ++i) requests.push_back(maker.Make());
  std::vector<Answer> alone;
  for (const Request& request : requests) alone.push_back(Ask(client, request, nullptr));
  const int kill_at = 1 + maker.Below(kTogether * 30);
  std::atomic<int> n_chunks = 0;
  std::vector<Answer> answers(kTogether);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kTogether; ++i)
    threads.emplace_back([&, i] {
      answers[i] = Ask(client, requests[i], [&] {
        if (++n_chunks == kill_at) ::kill(worker, SIGKILL);
      });
    });
  for (std::thread& thread : threads) thread.join();
  if (n_chunks < kill_at) ::kill(worker, SIGKILL);
  tally->n_midway += n_chunks >= kill_at;
  for (size_t i = 0; i < kTogether; ++i) {
    INFO("seed " << seed << "\n" << requests[i].body);
    CHECK(alone[i].error == "");
    CHECK(answers[i].error == "");
    CHECK(answers[i].texts == alone[i].texts);
    tally->n_different += !(answers[i] == alone[i]);
    ++tally->n_requests;
  }
}

// A server for every few kills: the pause before a worker is started again grows with each death.
// Returns how many requests had each parameter.
Counts Check(uint64_t seed, int n_servers) {
  Tally tally;
  const TempFolder folder;
  const std::string model = MakeReasoningDemo(folder);
  for (int i = 0; i < n_servers; ++i) {
    const auto served = ServedBaton::Start({model, "--log.level=warn"});
    INFO((served.ok() ? std::string() : std::string(served.status().message())));
    REQUIRE(served.ok());
    const HttpClient client = (*served)->client();
    for (int kill = 0; kill < kKills; ++kill) {
      const pid_t worker = (*served)->Child("decode");
      REQUIRE(worker > 0);
      RunRound(client, worker, seed++, &tally);
      const auto is_back = [&] {
        const pid_t now = (*served)->Child("decode");
        const auto health = client.Get("/health");
        return now > 0 && now != worker && health.ok() && health->status == 200;
      };
      const bool came_back = WaitUntil(absl::Seconds(120), is_back);
      INFO("the worker was " << worker << ", is " << (*served)->Child("decode") << "\n"
                             << (*served)->log());
      REQUIRE(came_back);
    }
    tally.n_failovers += MetricSum(client, "baton_failovers_total");
  }
  WARN(tally.n_requests << " requests, " << n_servers * kKills << " kills, " << tally.n_midway
                        << " of them midway, " << tally.n_failovers << " failovers, "
                        << tally.n_different << " answers differ");
  CHECK(tally.n_different == 0);
  CHECK(tally.n_midway * 4 >= n_servers * kKills * 3);
  CHECK(tally.n_failovers >= tally.n_midway);
  return tally.parameters;
}

TEST_CASE("4 kills at random tokens change no byte of 40 answers") { Check(1, 1); }

TEST_CASE("100 kills at random tokens, 200 requests a parameter", "[.][kills]") {
  for (const auto& [name, n] : Check(1000, 25)) {
    WARN(name << ": " << n << " requests");
    CHECK(n >= 200);
  }
}

}  // namespace
}  // namespace baton
