#include "server/process/worker_endpoint.h"

#include "absl/strings/str_cat.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("Every reason for which a KV chunk was not taken is a series, from the start on") {
  WorkerMetrics metrics;
  WorkerEndpoint endpoint(
      "w1", "m", [&] { return metrics; }, absl::Seconds(2));
  const auto has = [&](const std::string& name, const std::string& reason, int value) {
    const std::string label = reason.empty() ? "" : absl::StrCat(",reason=\"", reason, "\"");
    const std::string line =
        absl::StrCat("\n", name, "{model=\"m\"", label, ",worker=\"w1\"} ", value, "\n");
    return endpoint.Text().find(line) != std::string::npos;
  };
  for (size_t why = 0; why < kChunkRefusals; ++why)
    CHECK(has("baton_kv_chunks_refused_total", std::string(NameOf(ChunkRefusal(why))), 0));
  for (int round = 1; round <= 2; ++round) {
    for (size_t why = 0; why < kChunkRefusals; ++why)
      metrics.transfer.refused_chunks[why] = 10 * why + static_cast<size_t>(round);
    metrics.transfer.handoffs_resumed = static_cast<uint64_t>(round);
    metrics.transfer.handoffs_cancelled = static_cast<uint64_t>(round + 1);
    metrics.transfer.handoffs_failed = static_cast<uint64_t>(round + 2);
    for (size_t why = 0; why < kChunkRefusals; ++why)
      CHECK(has("baton_kv_chunks_refused_total", std::string(NameOf(ChunkRefusal(why))),
                10 * int(why) + round));
    CHECK(has("baton_handoffs_resumed_total", "", round));
    CHECK(has("baton_handoffs_cancelled_total", "", round + 1));
    CHECK(has("baton_handoffs_failed_total", "", round + 2));
  }
}

TEST_CASE("A link to another worker is a series for each kind of KV, from its first handoff on") {
  WorkerMetrics metrics;
  WorkerEndpoint endpoint(
      "w1", "m", [&] { return metrics; }, absl::Seconds(2));
  const auto has = [&](const std::string& line) {
    return endpoint.Text().find(absl::StrCat("\n", line, "\n")) != std::string::npos;
  };
  CHECK(endpoint.Text().find("baton_relay_bytes_total") == std::string::npos);
  for (const int round : {0, 1, 2}) {
    metrics.links = {
        {.rate = {.peer = 7, .bytes_per_second = 1e3 * round, .round_trip_us = 250'000 * round},
         .address = "10.0.0.2:9",
         .bytes = {uint64_t(4096 * round), uint64_t(100 * round)}}};
    const std::string labels = "link=\"10.0.0.2:9\",model=\"m\",worker=\"w1\"} ";
    CHECK(has(absl::StrCat("baton_relay_bytes_total{kind=\"chain\",", labels, 4096 * round)));
    CHECK(has(absl::StrCat("baton_relay_bytes_total{kind=\"decode\",", labels, 100 * round)));
    CHECK(has(absl::StrCat("baton_kv_link_bytes_per_second{", labels, 1000 * round)));
    CHECK(has(absl::StrCat("baton_kv_link_round_trip_seconds{", labels, 0.25 * round)));
  }
}

TEST_CASE("A worker whose engine stands still is not ready, and after twice as long not alive") {
  WorkerMetrics metrics;
  metrics.routers = 1;
  WorkerEndpoint endpoint(
      "w1", "m", [&] { return metrics; }, absl::Seconds(2));
  const auto is_good = [&](double age_seconds, double expected_seconds) {
    metrics.engine = {.turns = 7,
                      .age_us = static_cast<int64_t>(1e6 * age_seconds),
                      .expected_us = static_cast<int64_t>(1e6 * expected_seconds)};
    return std::pair(endpoint.ProblemOf(metrics, true).empty(),
                     endpoint.ProblemOf(metrics, false).empty());
  };
  CHECK(is_good(0, 0) == std::pair(true, true));
  CHECK(is_good(1.9, 0.1) == std::pair(true, true));
  CHECK(is_good(2.1, 0.1) == std::pair(false, true));
  CHECK(is_good(3.9, 0.1) == std::pair(false, true));
  CHECK(is_good(4.1, 0.1) == std::pair(false, false));
  // A step that should take long.
  CHECK(is_good(8.9, 3) == std::pair(true, true));
  CHECK(is_good(9.1, 3) == std::pair(false, true));
  CHECK(is_good(18.1, 3) == std::pair(false, false));
  CHECK(endpoint.ProblemOf(metrics, false) ==
        "The engine has been in one turn for 18.1s, which should take 3s.");
  CHECK(endpoint.Text().find("baton_engine_turns_total{model=\"m\",worker=\"w1\"} 7\n") !=
        std::string::npos);
  CHECK(endpoint.Text().find("baton_engine_turn_seconds{model=\"m\",worker=\"w1\"} 18.1\n") !=
        std::string::npos);
  metrics.engine = {};
  metrics.routers = 0;
  CHECK(endpoint.ProblemOf(metrics, true) == "The worker is not connected to a router.");
  CHECK(endpoint.ProblemOf(metrics, false).empty());
}

TEST_CASE("A worker's metrics need the scope metrics where there are keys; its probes need none") {
  WorkerMetrics metrics;
  const ApiKeys keys({{.name = "prom",
                       .digest = KeyDigest::Of("p"),
                       .tenant = "ops",
                       .scopes = SetOf(Scope::kMetrics)},
                      {.name = "app",
                       .digest = KeyDigest::Of("a"),
                       .tenant = "ops",
                       .scopes = SetOf(Scope::kInference)}});
  const auto status = [&](const ApiKeys* known, const std::string& path, const std::string& key) {
    WorkerEndpoint endpoint(
        "w1", "m", [&] { return metrics; }, absl::Seconds(2), known);
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.api_key = key;
    const auto refused = endpoint.OnHead(&request);
    return refused ? refused->status : 200;
  };
  CHECK(status(&keys, "/metrics", "p") == 200);
  CHECK(status(&keys, "/metrics", "a") == 403);
  CHECK(status(&keys, "/metrics", "") == 401);
  CHECK(status(&keys, "/metrics", "x") == 401);
  CHECK(status(&keys, "/livez", "") == 200);
  CHECK(status(&keys, "/readyz", "") == 200);
  CHECK(status(nullptr, "/metrics", "") == 200);
}

}  // namespace
}  // namespace baton
