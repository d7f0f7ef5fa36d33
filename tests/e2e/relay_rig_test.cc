// The processes of `baton bench relay MODEL` and `baton tune`: every scheme of prefill on two and
// three ranks gives the bits of one worker, and every link carries the bytes of its formula, on a
// wide and on a narrow link, with parts that are not whole pages.

#include "bench/relay/relay_measurement.h"
#include "bench/relay/relay_tuning.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Returns the tiny shape with another number of layers.
std::string ShapeOf(int n_layers) {
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/configs/shapes/tiny.json");
  std::string config{std::istreambuf_iterator<char>(in), {}};
  const std::string field = "\"num_hidden_layers\": ";
  const size_t at = config.find(field);
  REQUIRE(at != std::string::npos);
  config.replace(at + field.size(), config.find(',', at) - at - field.size(),
                 std::to_string(n_layers));
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("relay-rig-" + std::to_string(n_layers) + "-layers.json");
  std::ofstream(path) << config;
  return path;
}

RelayMeasurementOptions Tiny(int ranks) {
  RelayMeasurementOptions options;
  options.rig.program = BATON_BINARY;
  options.rig.engine.model = "random:" + ShapeOf(4);  // stages of two, or of one and two
  options.rig.engine.page_tokens = 16;
  options.rig.engine.limits.max_step_tokens = 100;
  options.rig.ranks = ranks;
  options.tokens = 1024 * ranks;  // two segments per rank, for rings
  options.rounds = 1;
  return options;
}

TEST_CASE("every scheme has the bits of one worker and the bytes of its formula") {
  for (const int ranks : {2, 3}) {
    RelayMeasurementOptions options = Tiny(ranks);
    options.links = {0, 20e6};
    const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
    INFO(measured.status());
    REQUIRE(measured.ok());
    int exact = 0;
    for (const RelayClaim& claim : measured->claims) {
      CHECK(claim.source == "measured");
      INFO(claim.what << " " << claim.value);
      if (claim.id != "R9" && claim.id != "R14" && claim.id != "R13") continue;
      CHECK(claim.holds());
      ++exact;
    }
    CHECK(exact == 8);
    std::set<std::string> schemes;
    for (const RelayResult& result : measured->results) {
      CHECK(result.seconds > 0);
      schemes.insert(result.scheme);
    }
    CHECK(schemes.size() == options.schemes.size());
  }
}

TEST_CASE("a narrow link is felt, and the closed form leaves the prompt to the last rank") {
  RelayMeasurementOptions options = Tiny(2);
  options.schemes = {"one", "kvr-e", "streaming"};
  options.links = {500e3};
  const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
  INFO(measured.status());
  REQUIRE(measured.ok());
  double even = 0, relay = 0, even_bytes = 0;
  for (const RelayResult& result : measured->results) {
    if (result.source != "measured") continue;
    if (result.scheme == "kvr-e") even = result.seconds;
    if (result.scheme == "kvr-e") even_bytes = result.slices[0];
    if (result.scheme == "streaming") relay = result.seconds;
  }
  CHECK(even_bytes == 1024);
  CHECK(even > 0.15);  // the first slice has about 100 kB
  CHECK(relay < even / 2);
}

TEST_CASE("other traffic on the links: scheme by scheme without and with it, the same bits") {
  RelayMeasurementOptions options = Tiny(2);
  options.schemes = {"one", "kvr-s", "streaming", "tsp"};
  options.links = {2e6};
  options.noise = {.workers = 2, .factor = 8, .period = 5e-3};  // the only pair
  const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
  INFO(measured.status());
  REQUIRE(measured.ok());
  std::map<std::string, double> seconds, simulated;
  for (const RelayResult& result : measured->results) {
    (result.source == "measured" ? seconds : simulated)[result.scheme] = result.seconds;
  }
  CHECK(seconds.size() == 7);  // one worker has no links
  CHECK(seconds.count("one, noise") == 0);
  // TSP waits for all its transfers: a quarter of a second, and eight times that.
  CHECK(seconds.at("tsp, noise") > seconds.at("tsp") + 0.2);
  CHECK(simulated.at("tsp, noise") > simulated.at("tsp") + 0.2);
  CHECK(measured->table.find("streaming, noise") != std::string::npos);
  int noise = 0;
  for (const RelayClaim& claim : measured->claims) {
    INFO(claim.what << " " << claim.value);
    if (claim.id == "R9" || claim.id == "R14") CHECK(claim.holds());
    if (claim.id != "R10") continue;
    ++noise;
    if (claim.what.starts_with("tsp")) CHECK(claim.value > 1);
  }
  CHECK(noise == 3);
}

TEST_CASE("what cannot be measured is refused") {
  RelayMeasurementOptions options = Tiny(2);
  options.tokens = 1000;
  CHECK(MeasureRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = Tiny(2);
  options.schemes = {"kvr"};
  CHECK(MeasureRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = Tiny(2);
  options.noise.factor = 8;  // of links that are not emulated
  CHECK(MeasureRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
  options.links = {1e6};
  options.noise.factor = 0.5;
  CHECK(MeasureRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = Tiny(2);
  options.rig.engine.model = "random:/nowhere.json";
  CHECK(!MeasureRelay(options).ok());
}

TEST_CASE("a ring meets keys in another order: its logits are within a bound of one worker's") {
  for (const char* dtype : {"fp32", "bf16"}) {
    RelayMeasurementOptions options = Tiny(2);
    options.rig.engine.dtype = dtype;
    options.schemes = {"one", "ring", "pipeline"};
    const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
    INFO(measured.status());
    REQUIRE(measured.ok());
    int bounds = 0;
    for (const RelayClaim& claim : measured->claims) {
      INFO(claim.what << " " << claim.value);
      if (claim.id == "R14") CHECK(claim.holds());
      if (claim.id != "R14" || claim.what.find("the ring's") == std::string::npos) continue;
      // The logits differ; bf16 may round the difference away.
      if (options.rig.engine.dtype == "fp32") CHECK(claim.value > 0);
      ++bounds;
    }
    CHECK(bounds == 1);
  }
}

TEST_CASE("memory is that of each scheme: a gather's first rank holds the whole prompt") {
  RelayMeasurementOptions options = Tiny(2);
  // With 64 layers, the KV in question is a share of a process and not lost in its noise.
  options.rig.engine.model = "random:" + ShapeOf(64);
  options.schemes = {"kvr-s", "tsp"};
  options.memory = true;
  const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
  INFO(measured.status());
  REQUIRE(measured.ok());
  int claims = 0;
  for (const RelayClaim& claim : measured->claims) {
    INFO(claim.what << " " << claim.value);
    if (claim.id != "R13") continue;
    CHECK(claim.holds());
    ++claims;
  }
  CHECK(claims == 2);
}

TEST_CASE("a pipeline needs a layer per rank") {
  RelayMeasurementOptions options = Tiny(3);
  options.rig.engine.model = "random:" + ShapeOf(2);
  options.schemes = {"pipeline"};
  const absl::Status status = MeasureRelay(options).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message().find("no layers for 3 ranks, but 2") != std::string::npos);
}

TEST_CASE("a dense mask changes no bits") {
  RelayMeasurementOptions options = Tiny(2);
  options.schemes = {"one", "kvr-e", "streaming", "tsp", "pipeline"};
  const auto digest = [&](bool dense_mask) {
    options.rig.lab.dense_mask = dense_mask;
    const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
    INFO(measured.status());
    REQUIRE(measured.ok());
    std::string found;
    for (const RelayClaim& claim : measured->claims) {
      if (claim.id != "R14") continue;
      CHECK(claim.holds());
      found = claim.detail;
    }
    return found;
  };
  const std::string causal = digest(false);
  CHECK(causal.size() == 16);
  CHECK(digest(true) == causal);
}

TEST_CASE("constants are found in the times of slices") {
  for (const PairKernel kernel : {PairKernel::kCausal, PairKernel::kDenseMask}) {
    const PrefillCost real{.token = 2e-4, .pair = 5e-8, .extra_tokens = 30, .kernel = kernel};
    std::vector<MeasuredSlice> slices;
    for (const auto& [tokens, before] :
         {std::pair(256, 0), {256, 768}, {128, 0}, {1024, 0}, {1024, 1024}, {512, 1536}}) {
      slices.push_back({tokens, before, real.Layer(tokens, before), 0});
    }
    const PrefillCost fitted = FitSlices(slices, {.n_layers = 8, .kernel = kernel});
    CHECK(fitted.token == Approx(real.token).epsilon(1e-3));
    CHECK(fitted.pair == Approx(real.pair).epsilon(1e-3));
    CHECK(fitted.extra_tokens == Approx(real.extra_tokens).epsilon(1e-2));
    CHECK(fitted.n_layers == 8);
  }
}

TEST_CASE("tuning measures costs and finds partitions that a table takes") {
  RelayTuningOptions options;
  options.rig = Tiny(2).rig;
  options.ranks = {2, 5};
  options.tokens = {512, 1024};
  options.rounds = 1;
  for (const bool measure : {false, true}) {
    options.measure = measure;
    if (measure) options.ranks = {2};
    const absl::StatusOr<RelayTuned> tuned = TuneRelay(options);
    INFO(tuned.status());
    REQUIRE(tuned.ok());
    CHECK(tuned->cost.cluster.cost.token > 0);
    CHECK(tuned->cost.slices.size() == 16);
    const absl::StatusOr<PartitionTable> read =
        ParsePartitionTable(PartitionTableText(tuned->table), "tuned");
    INFO(read.status());
    REQUIRE(read.ok());
    CHECK(read->model_fingerprint != 0);
    CHECK(read->cost->n_layers == tuned->cost.cluster.cost.n_layers);
    CHECK(read->cost_threads == options.rig.threads_per_rank);
    CHECK(read->cost->token == Approx(tuned->cost.cluster.cost.token));
    REQUIRE(read->of_ranks.size() == options.ranks.size());
    for (const int ranks : options.ranks) {
      CHECK(read->of_ranks.at(ranks).size() == 2);
      CHECK(read->Slices(768, ranks).size() == static_cast<size_t>(ranks));
    }
  }
  options.tokens = {100};
  CHECK(TuneRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
