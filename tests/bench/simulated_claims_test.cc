// The claims that a simulation can check: the paper's on its machine, the closed form against a
// search, and the planner against all choices on a smaller grid than `baton bench relay`.

#include "bench/relay/simulated_claims.h"

#include <catch2/catch.hpp>
#include <set>

namespace baton {
namespace {

NamedCluster Named(const char* name) {
  absl::StatusOr<NamedCluster> cluster = ClusterByName(name);
  REQUIRE(cluster.ok());
  return *std::move(cluster);
}

void CheckAll(const std::vector<RelayClaim>& claims) {
  REQUIRE(!claims.empty());
  for (const RelayClaim& claim : claims) {
    INFO(claim.id << ": " << claim.what << ": " << claim.value << " against " << claim.limit << " "
                  << claim.detail);
    CHECK(claim.source == "simulation");
    CHECK(claim.holds());
  }
}

TEST_CASE("the paper's claims, but where the model's launch floor decides") {
  // Slices so short that a layer takes the time of its launches at any length: the model leaves
  // little gain (R4), or the best partitions of two lengths are unrelated (R6).
  const std::set<std::string> floor = {
      "TSP / KVR-S, 300 GB/s, p = 4, 1024 tokens",
      "KVR-P over KVR-S, entries 4k apart, 300 GB/s, p = 4, 6144 tokens",
      "KVR-P over KVR-S, entries 4k apart, 10 GB/s, p = 4, 6144 tokens"};
  std::vector<RelayClaim> claims = PaperClaims();
  const size_t n =
      std::erase_if(claims, [&](const RelayClaim& claim) { return floor.contains(claim.what); });
  CHECK(n == floor.size());
  CheckAll(claims);
}

TEST_CASE("noise hurts schemes with a barrier most") { CheckAll(NoiseClaims(4, 4)); }

TEST_CASE("the closed form is within 3 % of the search in nine of ten cells") {
  std::vector<RelayResult> results;
  for (const char* name : {"a100-llama-7b", "h100-llama-3-8b"}) {
    NamedCluster cluster = Named(name);
    for (const double link : {300e9, 25e9, 10e9, 1e9}) {
      cluster.cluster.link = {link, 10e-6};
      for (const int ranks : {2, 4}) {
        for (RelayResult& result : SimulateSchemes(cluster, {2048, 8192, 32768}, ranks)) {
          results.push_back(std::move(result));
        }
      }
    }
  }
  CheckAll(ClosedFormClaims(results));
  // A search is no worse than its start, and the tasks on the critical path are never shorter.
  for (size_t i = 0; i + 1 < results.size(); ++i) {
    CHECK(results[i].seconds > 0);
    if (results[i].scheme != "streaming") continue;
    REQUIRE(results[i + 2].scheme == "searched");
    CHECK(results[i + 2].seconds <= results[i].seconds * (1 + 1e-9));
  }
}

TEST_CASE("the planner is close to the best of everything tried") {
  const double links[] = {25e9, 1e9};
  const double tokens[] = {2014, 6758, 28214};
  for (const char* name : {"a100-llama-7b", "h100-llama-3-8b"}) {
    const Regret regret = PlannerRegret(Named(name), links, tokens, 4);
    INFO(regret.worst_cell);
    CHECK(regret.cells == 6);
    CHECK(regret.mean <= 0.05);
    CHECK(regret.worst_against_alone <= 0);
  }
}

TEST_CASE("an unknown shape is refused with the names of the others") {
  const absl::Status status = ClusterByName("h200").status();
  CHECK(std::string(status.message()).find("h100-llama-3-8b") != std::string::npos);
}

}  // namespace
}  // namespace baton
