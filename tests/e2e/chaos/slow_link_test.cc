// Real processes: in the middle of a prompt the link between the two prefill workers of a relay
// falls to a hundredth of its bandwidth. The router sees that the prompt is late, dispatches it
// again to one worker, and logs it; tokens and digests equal those of an earlier run with a good
// link.

#include <boost/json.hpp>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/e2e/chaos/lab_cluster.h"
#include "tests/e2e/stream_crowd.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

namespace json = boost::json;

constexpr int kPromptTokens = 2048, kVocab = 32000;
constexpr int64_t kTokenBytes = int64_t{12} * 2 * 4 * 64 * 2;      // KV of the 125M shape
constexpr int64_t kInflowBytes = kPromptTokens / 2 * kTokenBytes;  // of the tail of two
constexpr int64_t kBytesPerSecond = 15'000'000;
constexpr int64_t kFallsAfter = kInflowBytes + kInflowBytes / 4;  // in the second prompt
// Seconds that the link then takes for the rest.
constexpr double kSlowSeconds =
    100.0 * static_cast<double>(2 * kInflowBytes - kFallsAfter) / kBytesPerSecond;

struct Answer {
  std::string tokens;  // tokens and digests; for a failed request the error
  absl::Duration took;
};

Answer Ask(const HttpClient& client, int n_tokens) {
  std::mt19937 random(7);
  json::array prompt;
  for (int i = 0; i < n_tokens; ++i) prompt.push_back(int(random() % kVocab));
  const std::string body = json::serialize(json::object{{"prompt", std::move(prompt)},
                                                        {"max_tokens", 12},
                                                        {"temperature", 0},
                                                        {"ignore_eos", true},
                                                        {"return_token_ids", true},
                                                        {"baton_digest", true}});
  const absl::Time begin = absl::Now();
  const auto response = client.Post("/v1/completions", body);
  const absl::Duration took = absl::Now() - begin;
  if (!response.ok()) return {std::string(response.status().message()), took};
  if (response->status != 200) return {response->body, took};
  const json::value parsed = json::parse(response->body);
  const json::value& choice = parsed.at("choices").at(0);
  return {absl::StrCat(json::serialize(choice.at("token_ids")),
                       json::serialize(choice.at("baton_digests"))),
          took};
}

// Returns the failovers for this cause; -1: no such line.
double LateRelays(const HttpClient& client) {
  const auto response = client.Get("/metrics");
  if (!response.ok()) return -1;
  const size_t at = response->body.find("baton_failovers_total{cause=\"late\"");
  if (at == std::string::npos) return -1;
  return std::stod(response->body.substr(response->body.find("} ", at) + 2));
}

TEST_CASE(
    "a link that falls to a hundredth in mid-prompt is left for one worker, soon and exactly") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / absl::StrFormat("baton_slow_link_%d", ::getpid());
  std::filesystem::create_directories(folder);
  // Among prefill workers, only a relay's tail receives KV.
  auto started = LabCluster::Start(
      {"random:" BATON_SOURCE_DIR "/configs/shapes/llama-125m.json", "--prefill.reuse_kv=false",
       "--decode.reuse_kv=false", "--router.relay_min_tokens=512", "--router.relay_max_ranks=2",
       "--lab.relay_min_ranks=2", "--lab.partition=even", "--router.local=false",
       absl::StrCat("--lab.link_bytes_per_second=", kBytesPerSecond)},
      folder.string(), Wires::kLoopback, {absl::StrCat("--lab.link_falls_after=", kFallsAfter)});
  INFO((started.ok() ? std::string() : std::string(started.status().message())));
  REQUIRE(started.ok());
  LabCluster& cluster = **started;
  const HttpClient client(cluster.url(), absl::Seconds(120));

  Ask(client, kPromptTokens / 8);  // one worker computes it, and the router learns the cost
  const Answer undisturbed = Ask(client, kPromptTokens);
  REQUIRE(undisturbed.tokens.find("error") == std::string::npos);
  REQUIRE(MetricSum(client, "baton_relays_total") == 1);
  // 0, unless the machine itself stood still.
  const double before = LateRelays(client);
  REQUIRE(before >= 0);

  const Answer disturbed = Ask(client, kPromptTokens);
  INFO(cluster.Log());
  WARN("undisturbed " << absl::FormatDuration(undisturbed.took) << ", on a link that falls "
                      << absl::FormatDuration(disturbed.took) << ", of what the link would take "
                      << absl::FormatDuration(absl::Seconds(kSlowSeconds)));
  CHECK(disturbed.tokens == undisturbed.tokens);
  CHECK(disturbed.took < absl::Seconds(kSlowSeconds / 2));
  CHECK(MetricSum(client, "baton_relays_total") == 2);
  CHECK(LateRelays(client) == before + 1);
  const std::string log = cluster.Log();
  CHECK(log.find("is dispatched anew: the relay has no token") != std::string::npos);
  CHECK(cluster.Stop().ok());
  CHECK(log.find("CHECK failed") == std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace baton
