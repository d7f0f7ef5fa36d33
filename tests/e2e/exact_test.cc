// Exactness seen from outside: the same requests give the same tokens and logits digests from a
// disaggregated server, a colocated one and relays in rounds, alone, 32 at once and as choices of
// one request, and every request gets an answer.

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/str_format.h"
#include "server/api/choice_seed.h"
#include "tests/e2e/served_baton.h"

namespace baton {
namespace {

// Returns a body whose prompt has 3 to about 1,200 tokens; half of the requests are sampled with a
// seed.
std::string RequestBody(int i) {
  std::string prompt = "Once upon a time there was a duck.";
  for (int words = 0; words < (i * i * 7) % 400; ++words) {
    prompt += absl::StrFormat(" box %d", (i + words) % 97);
  }
  boost::json::object body{{"prompt", prompt}, {"max_tokens", 8 + i % 25}, {"baton_digest", true}};
  if (i % 2 == 0) {
    body["temperature"] = 0;
  } else {
    body["temperature"] = 0.9;
    body["top_p"] = 0.95;
    body["top_k"] = 40;
    body["seed"] = 1000 + i;
  }
  return boost::json::serialize(body);
}

// Returns text, finish reason and digests of each choice of an answer, or the text of an error.
std::vector<std::string> Essences(const absl::StatusOr<HttpResponse>& response) {
  if (!response.ok()) return {"transport: " + std::string(response.status().message())};
  if (response->status != 200)
    return {absl::StrFormat("HTTP %d %s", response->status, response->body)};
  std::vector<std::string> essences;
  const boost::json::value answer = boost::json::parse(response->body);
  for (const boost::json::value& choice : answer.at("choices").as_array()) {
    essences.push_back(
        boost::json::serialize(boost::json::object{{"text", choice.at("text")},
                                                   {"finish_reason", choice.at("finish_reason")},
                                                   {"digests", choice.at("baton_digests")}}));
  }
  return essences;
}

std::string Essence(const absl::StatusOr<HttpResponse>& response) {
  return Essences(response).front();
}

constexpr int kRequests = 32;

std::vector<std::string> AllAtOnce(const HttpClient& client) {
  std::vector<std::string> answers(kRequests);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRequests; ++i) {
    threads.emplace_back(
        [&, i] { answers[i] = Essence(client.Post("/v1/completions", RequestBody(i))); });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

std::vector<std::string> OneByOne(const HttpClient& client) {
  std::vector<std::string> answers;
  for (int i = 0; i < kRequests; ++i) {
    answers.push_back(Essence(client.Post("/v1/completions", RequestBody(i))));
  }
  return answers;
}

// Choices of a batch of prompts equal requests alone with the seeds of the choices.
void CheckChoices(const HttpClient& client) {
  constexpr int64_t kSeed = 77;
  const std::vector<std::string> prompts = {"Once upon a time there was a duck.", "Two boxes"};
  const auto ask = [&](const boost::json::value& prompt, int n, uint64_t seed) {
    return Essences(client.Post("/v1/completions", boost::json::serialize(boost::json::object{
                                                       {"prompt", prompt},
                                                       {"n", n},
                                                       {"seed", static_cast<int64_t>(seed)},
                                                       {"temperature", 0.9},
                                                       {"max_tokens", 16},
                                                       {"ignore_eos", true},
                                                       {"baton_digest", true}})));
  };
  const std::vector<std::string> together =
      ask(boost::json::array(prompts.begin(), prompts.end()), 3, kSeed);
  REQUIRE(together.size() == 6);
  for (size_t i = 0; i < together.size(); ++i) {
    INFO(i);
    const auto alone = ask(boost::json::value(prompts[i / 3]), 1, ChoiceSeed(kSeed, i % 3));
    CHECK(together[i] == alone.front());
  }
  CHECK(together[0] != together[1]);
  CHECK(together[1] != together[2]);
}

// Returns what is told of prompts, and of nothing else: as vLLM has it, and by echo.
std::vector<std::string> Scores(const HttpClient& client) {
  std::vector<std::string> scores;
  for (int i = 0; i < kRequests; i += 5) {
    boost::json::object body = boost::json::parse(RequestBody(i)).as_object();
    body["max_tokens"] = 0;
    body["echo"] = true;
    body["logprobs"] = 2;
    body["prompt_logprobs"] = 1;
    const auto response = client.Post("/v1/completions", boost::json::serialize(body));
    INFO((response.ok() ? response->body : std::string(response.status().message())));
    REQUIRE(response.ok());
    REQUIRE(response->status == 200);
    const boost::json::value answer = boost::json::parse(response->body);
    const auto n_prompt =
        static_cast<size_t>(answer.at("usage").at("prompt_tokens").to_number<int64_t>());
    CHECK(answer.at("usage").at("completion_tokens") == 0);
    CHECK(answer.at("usage").at("prompt_tokens_details").at("cached_tokens") == 0);
    const boost::json::value& choice = answer.at("choices").at(0);
    CHECK(choice.at("text") == body.at("prompt"));
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      CHECK(choice.at("logprobs").at(list).as_array().size() == n_prompt);
    CHECK(choice.at("prompt_logprobs").as_array().size() == n_prompt);
    scores.push_back(boost::json::serialize(choice));
  }
  return scores;
}

TEST_CASE("disaggregated = colocated, alone = in a crowd, byte for byte") {
  auto disaggregated = ServedBaton::Start({"--demo"});
  INFO((disaggregated.ok() ? std::string() : std::string(disaggregated.status().message())));
  REQUIRE(disaggregated.ok());
  const std::vector<std::string> alone = OneByOne((*disaggregated)->client());
  for (const std::string& answer : alone) {
    INFO(answer);
    REQUIRE(answer.starts_with("{\"text\""));
    REQUIRE(answer.find("\"digests\":[]") == std::string::npos);
  }
  CHECK(AllAtOnce((*disaggregated)->client()) == alone);
  CheckChoices((*disaggregated)->client());
  const std::vector<std::string> scores = Scores((*disaggregated)->client());
  const absl::StatusOr<int> status = (*disaggregated)->Terminate();
  REQUIRE(status.ok());
  CHECK(*status == 0);

  auto colocated = ServedBaton::Start({"--demo", "--colocated"});
  REQUIRE(colocated.ok());
  CHECK(AllAtOnce((*colocated)->client()) == alone);
  CHECK(Scores((*colocated)->client()) == scores);
}

// Counts the requests in the log of a server whose ranks computed several slices each.
int RelaysInRounds(const std::string& log) {
  const std::string ranks = "ranks 2  rounds ";
  int relays = 0;
  for (size_t at = log.find(ranks); at != std::string::npos; at = log.find(ranks, at + 1))
    if (std::stoi(log.substr(at + ranks.size())) > 1) ++relays;
  return relays;
}

TEST_CASE("prompts of several slices per worker = one worker alone, byte for byte") {
  const std::vector<std::string> common = {"--demo", "--prefill.workers=2",
                                           "--model.page_tokens=16"};
  const auto start = [&common](std::vector<std::string> args) {
    args.insert(args.begin(), common.begin(), common.end());
    auto served = ServedBaton::Start(args);
    INFO((served.ok() ? std::string() : std::string(served.status().message())));
    REQUIRE(served.ok());
    return *std::move(served);
  };
  const std::vector<std::string> alone =
      AllAtOnce(start({"--router.relay_min_tokens=0"})->client());
  // Comparisons change how KV is passed on and attended to, and no byte.
  const std::vector<std::string> lab = {"--lab.forwarding=accumulated", "--lab.streaming=off",
                                        "--lab.attention=dense_mask"};
  for (const bool in_lab : {false, true}) {
    CAPTURE(in_lab);
    std::vector<std::string> args = {"--router.relay_min_tokens=100", "--lab.relay_min_ranks=2",
                                     "--prefill.max_slice_tokens=64"};
    if (in_lab) args.insert(args.end(), lab.begin(), lab.end());
    const auto relays = start(args);
    CHECK(AllAtOnce(relays->client()) == alone);
    // The planner chooses relays and rounds by its measurements.
    CHECK(RelaysInRounds(relays->log()) >= 4);  // 18 to 26 seen
    const absl::StatusOr<int> status = relays->Terminate();
    REQUIRE(status.ok());
    CHECK(*status == 0);
  }
}

TEST_CASE("cached prompts are shared among requests with one salt alone") {
  auto served = ServedBaton::Start({"--demo", "--prefill.workers=1"});
  REQUIRE(served.ok());
  const HttpClient client = (*served)->client();
  const auto cached = [&](const std::string& salt) {
    // The first token, which the prefill worker draws, may be the only one.
    const int max_tokens = salt.empty() ? 1 : 2;
    boost::json::object body{{"prompt", ""}, {"max_tokens", max_tokens}, {"temperature", 0}};
    std::string prompt;
    for (int i = 0; i < 400; ++i) prompt += absl::StrFormat(" box %d", i);
    body["prompt"] = prompt;
    if (!salt.empty()) body["cache_salt"] = salt;
    const auto response = client.Post("/v1/completions", boost::json::serialize(body));
    REQUIRE(response.ok());
    INFO(response->body);
    REQUIRE(response->status == 200);
    const boost::json::value usage = boost::json::parse(response->body).at("usage");
    return usage.at("prompt_tokens_details").at("cached_tokens").to_number<int64_t>();
  };
  for (const char* salt : {"", "tenant a", "tenant b"}) CHECK(cached(salt) == 0);
  for (const char* salt : {"", "tenant a", "tenant b"}) CHECK(cached(salt) > 100);
  CHECK(cached("tenant c") == 0);
}

}  // namespace
}  // namespace baton
