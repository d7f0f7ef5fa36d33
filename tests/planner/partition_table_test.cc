// Tuned tables: a written table is read back, and a wrong one is refused by line and field.
#include "planner/partition_table.h"

#include <catch2/catch.hpp>

#include <random>

namespace baton {
namespace {

using Catch::Contains;

PartitionTable Table() {
  PartitionTable table{.model = "llama: 1b", .model_fingerprint = 0xFEDCBA9876543210};
  table.numerics_id = "cpu-x86";
  table.of_ranks[2] = {{2048, {.55, .45}}, {4096, {.53, .47}}};
  table.of_ranks[4] = {{8192, {.35, .255, .21, .185}}};
  return table;
}

std::string Refusal(const std::string& yaml) {
  const auto table = ParsePartitionTable(yaml, "t.yaml");
  CHECK(table.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(table.status().message());
}

constexpr char kHead[] = "model: m\nmodel_fingerprint: 'ab'\nnumerics_id: cpu-x86\n";

}  // namespace

TEST_CASE("a table survives its file") {
  const auto read = ParsePartitionTable(PartitionTableText(Table()), "t.yaml");
  REQUIRE(read.ok());
  CHECK(read->model == "llama: 1b");
  CHECK(read->model_fingerprint == 0xFEDCBA9876543210);
  CHECK(read->numerics_id == "cpu-x86");
  REQUIRE(read->of_ranks.size() == 2);
  REQUIRE(read->of_ranks.at(2).size() == 2);
  CHECK(read->of_ranks.at(2)[1].tokens == 4096);
  CHECK(read->of_ranks.at(4)[0].ratios[3] == Approx(.185));
}

TEST_CASE("a table may have the costs it was tuned with") {
  CHECK(!ParsePartitionTable(PartitionTableText(Table()), "t.yaml")->cost.has_value());
  PartitionTable table = Table();
  table.cost = PrefillCost{.n_layers = 16,
                           .token = 1.25e-5,
                           .pair = 3e-10,
                           .extra_tokens = 40,
                           .min_linear = 1e-4,
                           .head = 0.01,
                           .kv_bytes = 2048,
                           .kernel = PairKernel::kDenseMask};
  table.cost_threads = 3;
  const auto read = ParsePartitionTable(PartitionTableText(table), "t.yaml");
  REQUIRE(read.ok());
  REQUIRE(read->cost.has_value());
  CHECK(read->cost->n_layers == 16);
  CHECK(read->cost->Layer(100, 200) == Approx(table.cost->Layer(100, 200)));
  CHECK(read->cost->Alone(9000, 0) == Approx(table.cost->Alone(9000, 0)));
  CHECK(read->cost->kv_bytes == 2048);
  CHECK(read->cost_threads == 3);
  const std::string head = std::string(kHead) + "cost: {layers: 2, token: ";
  CHECK_THAT(Refusal(head + "0, pair: 0}"), Contains("token"));
  CHECK_THAT(Refusal(head + "1e-5, pair: -1}"), Contains("t.yaml:4: pair is -1"));
  CHECK_THAT(Refusal(head + "1e-5}"), Contains("pair is missing"));
  const std::string rest =
      "1e-5, pair: 0, extra_tokens: 0, least_linear: 0, head: 0, kv_bytes: 1, attention: causal";
  CHECK_THAT(Refusal(head + rest + "}"), Contains("threads is missing"));
  CHECK_THAT(Refusal(head + rest + ", threads: 0}"), Contains("threads must be 1 or more"));
}

TEST_CASE("costs are for workers of the same model with as many threads") {
  PartitionTable table = Table();
  const auto refusal = [&](const CostUser& user) {
    const auto cost = CostFor(user, table, "t.yaml");
    CHECK(cost.status().code() == absl::StatusCode::kFailedPrecondition);
    return std::string(cost.status().message());
  };
  const CostUser same{table.model_fingerprint, table.numerics_id, 16, 2};
  CHECK_THAT(refusal(same), Contains("t.yaml: its costs are missing"));
  table.cost = PrefillCost{.n_layers = 16, .token = 1e-5};
  table.cost_threads = 2;
  REQUIRE(CostFor(same, table, "t.yaml").ok());
  CHECK(CostFor(same, table, "t.yaml")->token == 1e-5);
  CostUser other = same;
  other.model_fingerprint = 7;
  CHECK_THAT(refusal(other), Contains("llama: 1b (fedcba9876543210") &&
                                 Contains("has 0000000000000007") && Contains("baton tune"));
  other = same;
  other.numerics_id = "cuda-sm90";
  CHECK_THAT(refusal(other), Contains("has fedcba9876543210, cuda-sm90"));
  other = same;
  other.n_layers = 12;
  CHECK_THAT(refusal(other), Contains("12 layers"));
  other = same;
  other.threads = 1;
  CHECK_THAT(refusal(other), Contains("with 2 threads, this one has 1") &&
                                 Contains("--threads-per-rank 1") && Contains("prefill.threads") &&
                                 Contains("prefill.cost_file"));
}

TEST_CASE("slices between the entries of a table") {
  const PartitionTable table = Table();
  const std::vector<double> slices = table.Slices(3072, 2);
  REQUIRE(slices.size() == 2);
  CHECK(slices[0] == Approx(.54 * 3072));
  CHECK(slices[0] + slices[1] == Approx(3072));
  CHECK(table.Slices(100, 4)[0] == Approx(35));
  CHECK(table.Slices(100, 3).empty());
}

TEST_CASE("what is wrong in a table is named with its line") {
  CHECK_THAT(Refusal("{"), Contains("t.yaml:"));
  CHECK_THAT(Refusal("[1]"), Contains("model_fingerprint"));
  CHECK_THAT(Refusal("model: m\n"), Contains("model_fingerprint is missing"));
  CHECK_THAT(Refusal("model: m\nmodel_fingerprint: xyz\n"),
             Contains("t.yaml:2: model_fingerprint"));
  CHECK_THAT(Refusal(kHead), Contains("ranks is missing"));
  const auto entries = [](const std::string& text) { return Refusal(kHead + text); };
  CHECK_THAT(entries("ranks: {1: [{tokens: 9, ratios: [1]}]}"), Contains("from 2 to 64"));
  CHECK_THAT(entries("ranks: {2: []}"), Contains("with entries"));
  CHECK_THAT(entries("ranks:\n  2:\n  - {tokens: 9, ratios: [0.5, 0.2, 0.3]}"),
             Contains("t.yaml:6: 3 ratios of 2 ranks"));
  CHECK_THAT(entries("ranks:\n  2:\n  - {tokens: 9, ratios: [0.5, 0.3]}"),
             Contains("add up to 0.8"));
  CHECK_THAT(entries("ranks:\n  2:\n  - {tokens: 9, ratios: [1.5, -0.5]}"),
             Contains("more than 0"));
  CHECK_THAT(entries("ranks:\n  2:\n  - {tokens: 9, ratios: [.nan, 1]}"), Contains("more than 0"));
  CHECK_THAT(entries("ranks:\n  2:\n  - {tokens: x, ratios: [0.5, 0.5]}"), Contains("wrong type"));
  CHECK_THAT(entries("ranks:\n  2:\n  - {tokens: 9, ratios: [0.5, 0.5]}\n  - {tokens: 9, ratios: "
                     "[0.5, 0.5]}"),
             Contains("t.yaml:7: tokens is 9, must be more than 9"));
}

TEST_CASE("changed bytes are read or refused, never worse") {
  const std::string text = PartitionTableText(Table());
  std::mt19937_64 random(7);
  int refused = 0;
  for (int run = 0; run < 3000; ++run) {
    std::string bytes = text;
    for (uint64_t n = 1 + random() % 4; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random() % 127);
    const auto table = ParsePartitionTable(bytes, "t.yaml");
    refused += !table.ok();
    if (!table.ok()) continue;
    for (const auto& [ranks, entries] : table->of_ranks)
      CHECK(table->Slices(1000, ranks).size() == static_cast<size_t>(ranks));
  }
  CHECK(refused > 1000);
}

}  // namespace baton
