// Requests with parameters of the API, drawn together, to a real `baton serve` whose decode worker
// is killed at a random token: texts, log-probabilities and finish reasons are those without the
// kill. A slice runs in CI; "[.][kills]" is the command of docs/RELIABILITY.md.
#include <signal.h>

#include <atomic>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"

namespace baton {
namespace {

namespace json = boost::json;

class RequestMaker {
 public:
  explicit RequestMaker(uint64_t seed) : random_(seed) {}

  std::string Make() {
    std::string prompt = "Tell me a story about a duck";
    for (int n = Below(60); n > 0; --n) absl::StrAppend(&prompt, " and box ", Below(100));
    json::object body{{"prompt", prompt},
                      {"stream", true},
                      {"max_tokens", 40 + Below(120)},
                      {"ignore_eos", true},
                      {"temperature", Percent(30) ? 0 : Hundredths(20, 150)},
                      {"seed", Below(1'000'000)}};
    if (Percent(30)) body["top_k"] = 1 + Below(200);
    if (Percent(30)) body["top_p"] = Hundredths(10, 100);
    if (Percent(30)) body["min_p"] = Hundredths(0, 50);
    if (Percent(30)) body["presence_penalty"] = Hundredths(-200, 200);
    if (Percent(30)) body["frequency_penalty"] = Hundredths(-200, 200);
    if (Percent(30)) body["repetition_penalty"] = Hundredths(50, 200);
    if (Percent(30)) body["n"] = 2;
    if (Percent(40)) body["logprobs"] = Below(6);
    if (Percent(20)) body["min_tokens"] = Below(20);
    if (Percent(20)) body["bad_words"] = json::array{"duck", " the", "box 7"};
    if (Percent(20)) body["return_tokens_as_token_ids"] = true;
    if (Percent(20)) body["stream_interval"] = 1 + Below(9);
    if (Percent(20)) body["cache_salt"] = absl::StrCat("tenant ", Below(3));
    if (Percent(20)) {
      json::object bias;
      for (int n = 1 + Below(5); n > 0; --n)
        bias[absl::StrCat(256 + Below(1500))] = Below(101) - 50;
      body["logit_bias"] = bias;
    }
    if (Percent(25)) {
      body["structured_outputs"] = json::object{{"regex", "([a-z]{2,8} ){8,20}[A-Z]{3}"}};
    } else if (Percent(15)) {
      json::array ids;
      for (int id = 0; id < 1200; ++id) ids.push_back(id);
      body["allowed_token_ids"] = ids;
    }
    return json::serialize(body);
  }

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

 private:
  bool Percent(int share) { return Below(100) < share; }
  double Hundredths(int min, int max) { return (min + Below(max - min + 1)) / 100.0; }

  std::mt19937_64 random_;
};

// Joins what a stream brought: per choice its text, log-probabilities and finish reason.
struct Answer {
  std::map<int64_t, std::string> texts, finishes;
  std::map<std::string, std::string> logprobs;  // by choice and list
  std::string error;
  bool operator==(const Answer&) const = default;

  void Add(const json::value& chunk) {
    if (chunk.as_object().contains("error")) error = json::serialize(chunk);
    if (!chunk.as_object().contains("choices")) return;
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const int64_t index = choice.at("index").as_int64();
      texts[index] += choice.at("text").as_string();
      if (!choice.at("finish_reason").is_null())
        finishes[index] += choice.at("finish_reason").as_string();
      const json::value* told = choice.as_object().if_contains("logprobs");
      if (told == nullptr || told->is_null()) continue;
      // A chunk's lists are parts of the whole answer's, which are as long whatever the chunks.
      for (const char* list : {"tokens", "token_logprobs", "top_logprobs"}) {
        const json::value& values = told->at(list);
        if (values.is_null()) continue;
        for (const json::value& value : values.as_array())
          logprobs[absl::StrCat(index, list)] += json::serialize(value) + "\n";
      }
    }
  }
};

Answer Ask(const HttpClient& client, const std::string& body,
           const std::function<void()>& on_chunk) {
  Answer answer;
  const auto response =
      client.Post("/v1/completions", body, [&](std::string_view data, absl::Time) {
        if (data == "[DONE]") return false;
        answer.Add(json::parse(json::string_view(data.data(), data.size())));
        if (on_chunk) on_chunk();
        return true;
      });
  if (!response.ok()) answer.error = response.status().ToString();
  if (response.ok() && response->status != 200) answer.error = response->body;
  return answer;
}

constexpr int kTogether = 8, kKills = 4;

struct Counts {
  int n_requests = 0, n_midway = 0, n_different = 0;
  double n_failovers = 0;
};

// Lets requests run alone, then together, and kills `worker` at a random chunk of all together.
void RunRound(const HttpClient& client, pid_t worker, uint64_t seed, Counts* counts) {
  RequestMaker maker(seed);
  std::vector<std::string> bodies;
  for (int i = 0; i < kTogether; ++i) bodies.push_back(maker.Make());
  std::vector<Answer> alone;
  for (const std::string& body : bodies) alone.push_back(Ask(client, body, nullptr));
  const int kill_at = 1 + maker.Below(kTogether * 40);
  std::atomic<int> n_chunks = 0;
  std::vector<Answer> answers(kTogether);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kTogether; ++i)
    threads.emplace_back([&, i] {
      answers[i] = Ask(client, bodies[i], [&] {
        if (++n_chunks == kill_at) ::kill(worker, SIGKILL);
      });
    });
  for (std::thread& thread : threads) thread.join();
  if (n_chunks < kill_at) ::kill(worker, SIGKILL);
  counts->n_midway += n_chunks >= kill_at;
  for (size_t i = 0; i < kTogether; ++i) {
    INFO("seed " << seed << "\n" << bodies[i]);
    CHECK(alone[i].error.empty());
    CHECK(answers[i].error.empty());
    CHECK(answers[i].finishes == alone[i].finishes);
    CHECK(answers[i].texts == alone[i].texts);
    CHECK(answers[i].logprobs == alone[i].logprobs);
    counts->n_different += !(answers[i] == alone[i]);
    ++counts->n_requests;
  }
}

// A server for every few kills: the pause before a worker is started again grows with each death.
void Check(uint64_t seed, int n_servers) {
  Counts counts;
  for (int i = 0; i < n_servers; ++i) {
    const auto served = ServedBaton::Start({"--demo", "--log.level=warn"});
    INFO((served.ok() ? std::string() : std::string(served.status().message())));
    REQUIRE(served.ok());
    const HttpClient client = (*served)->client();
    for (int kill = 0; kill < kKills; ++kill) {
      const pid_t worker = (*served)->Child("decode");
      REQUIRE(worker > 0);
      RunRound(client, worker, seed++, &counts);
      const auto is_back = [&] {
        const pid_t now = (*served)->Child("decode");
        const auto health = client.Get("/health");
        return now > 0 && now != worker && health.ok() && health->status == 200;
      };
      REQUIRE(WaitUntil(absl::Seconds(30), is_back));
    }
    counts.n_failovers += MetricSum(client, "baton_failovers_total");
  }
  WARN(counts.n_requests << " requests, " << n_servers * kKills << " kills, " << counts.n_midway
                         << " of them midway, " << counts.n_failovers << " failovers, "
                         << counts.n_different << " answers differ");
  CHECK(counts.n_different == 0);
  CHECK(counts.n_midway * 4 >= n_servers * kKills * 3);
  CHECK(counts.n_failovers >= counts.n_midway);
}

TEST_CASE("4 kills at random tokens change no byte of 32 answers") { Check(1, 1); }

TEST_CASE("100 kills at random tokens", "[.][kills]") { Check(1000, 25); }

}  // namespace
}  // namespace baton
