// Real processes: a relay, in one round or in several, loses each of its workers in turn in the
// middle of the prompt: one of three ranks, with a fourth worker as replacement, and one of two,
// where only the other remains. Tokens and digests equal those of an undisturbed run.
#include <sys/wait.h>

#include <boost/json.hpp>
#include <csignal>
#include <fstream>
#include <future>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/e2e/served_baton.h"
#include "tests/e2e/stream_crowd.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

namespace json = boost::json;

constexpr int kPromptTokens = 2048, kVocab = 32000;

std::string Body() {
  std::mt19937 random(7);
  json::array prompt;
  for (int i = 0; i < kPromptTokens; ++i) prompt.push_back(int(random() % kVocab));
  return json::serialize(json::object{{"prompt", std::move(prompt)},
                                      {"max_tokens", 12},
                                      {"temperature", 0},
                                      {"ignore_eos", true},
                                      {"return_token_ids", true},
                                      {"baton_digest", true}});
}

// Returns tokens and digests; for a failed request the error.
std::string Answer(const HttpClient& client) {
  const auto response = client.Post("/v1/completions", Body());
  if (!response.ok()) return std::string(response.status().message());
  if (response->status != 200) return response->body;
  const json::value parsed = json::parse(response->body);
  const json::value& choice = parsed.at("choices").at(0);
  return absl::StrCat(json::serialize(choice.at("token_ids")),
                      json::serialize(choice.at("baton_digests")));
}

// Returns the worker processes of this role, in the order of their ids.
std::vector<pid_t> Workers(const ServedBaton& served, const std::string& role) {
  std::vector<pid_t> workers;
  for (const pid_t child : served.Children()) {
    std::ifstream file(absl::StrCat("/proc/", child, "/cmdline"), std::ios::binary);
    const std::string line((std::istreambuf_iterator<char>(file)), {});
    if (line.find(role) != std::string::npos) workers.push_back(child);
  }
  std::sort(workers.begin(), workers.end());
  return workers;
}

// Returns "request NAME " of the first log line with these words.
std::string RequestOf(const std::string& log, const std::string& words) {
  const size_t line = log.rfind('\n', log.find(words)) + 1;
  const size_t name = log.find("request ", line);
  return log.substr(name, log.find(' ', name + 8) + 1 - name);
}

// Adds up the log's "... computes again tokens 0-256,448-704" of all mended relays.
int TokensComputedAgain(const std::string& log) {
  const std::string words = "computes again tokens ";
  int tokens = 0;
  for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) {
    std::istringstream slices(log.substr(at + words.size(), log.find('\n', at) - at));
    int begin = 0, end = 0;
    char dash = 0;
    do {
      slices >> begin >> dash >> end;
      tokens += end - begin;
    } while (slices.get() == ',');
  }
  return tokens;
}

// Kills each of n_workers prefill workers in turn during relays of n_ranks.
void LoseEachInTurn(int n_workers, int n_ranks, int max_slice_tokens) {
  auto started = ServedBaton::Start(
      {"random:" BATON_SOURCE_DIR "/configs/shapes/llama-125m.json",
       absl::StrCat("--prefill=", n_workers), "--decode=1", "--prefill.threads=1",
       "--decode.threads=1", "--router.local=false", "--prefill.reuse_kv=false",
       "--decode.reuse_kv=false", "--router.relay_min_tokens=512",
       absl::StrCat("--router.relay_max_ranks=", n_ranks),
       absl::StrCat("--lab.relay_min_ranks=", n_ranks), "--lab.partition=even",
       absl::StrCat("--prefill.max_slice_tokens=", max_slice_tokens)},
      absl::Seconds(180));
  INFO((started.ok() ? std::string() : std::string(started.status().message())));
  REQUIRE(started.ok());
  const std::unique_ptr<ServedBaton> served = *std::move(started);
  const HttpClient client = served->client();
  const auto all_here = [&] { return MetricSum(client, "baton_workers") == n_workers + 1; };
  REQUIRE(WaitUntil(absl::Seconds(60), all_here));
  const std::string undisturbed = Answer(client);
  REQUIRE(undisturbed.find("error") == std::string::npos);
  const double relays = MetricSum(client, "baton_relays_total");
  REQUIRE(relays >= 1);
  const auto n_replaced = [&] { return MetricSum(client, "baton_relay_ranks_replaced_total"); };
  // Each worker at least once; more often if a killed worker had no slice.
  for (int kills = 0; kills < n_workers || (n_replaced() < 2 && kills < 4 * n_workers); ++kills) {
    INFO(kills);
    const double before = MetricSum(client, "baton_relays_total");
    std::future<std::string> answer =
        std::async(std::launch::async, [&] { return Answer(client); });
    if (!WaitUntil(absl::Seconds(60),
                   [&] { return MetricSum(client, "baton_relays_total") > before; })) {
      FAIL("no relay began: " << answer.get() << "\n" << served->log());
    }
    absl::SleepFor(absl::Milliseconds(150));  // the prompt has started
    const std::vector<pid_t> workers = Workers(*served, "prefill");
    REQUIRE(workers.size() == size_t(n_workers));
    // Restarted workers have the highest ids, so the oldest worker is killed.
    REQUIRE(::kill(workers.front(), SIGKILL) == 0);
    CHECK(answer.get() == undisturbed);
    REQUIRE(WaitUntil(absl::Seconds(60), all_here));
  }
  INFO(served->log());
  const double replaced = n_replaced();
  CHECK(replaced >= 2);
  const double recomputed =
      MetricSum(client, "baton_recompute_tokens_total", "reason=\"worker_lost\"");
  CHECK(recomputed > 0);
  const std::string log = served->log();
  // Only the lost slices: a rank's share of the prompt, in whole pages.
  CHECK(recomputed <= TokensComputedAgain(log));
  CHECK(TokensComputedAgain(log) <= 1.5 * replaced * kPromptTokens / n_ranks);
  REQUIRE(log.find(" goes on as a relay after ") != std::string::npos);
  const std::string request = RequestOf(log, " goes on as a relay after ");
  CHECK(log.find(request + "200 ") != std::string::npos);  // the line at its end
  REQUIRE(served->Terminate().ok());
  CHECK(served->log().find("CHECK failed") == std::string::npos);
}

TEST_CASE("a killed rank of a relay is replaced: the same tokens, the others keep their slices") {
  LoseEachInTurn(4, 3, GENERATE(kPromptTokens / 8, kPromptTokens));
}

TEST_CASE("a killed rank's slices are computed by the other rank, when there is no third worker") {
  LoseEachInTurn(2, 2, GENERATE(kPromptTokens / 8, kPromptTokens));
}

}  // namespace
}  // namespace baton
