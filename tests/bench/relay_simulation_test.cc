// The simulated schedules against figures of an independently written simulator for these
// partitions, and against bounds that hold for any schedule.

#include "bench/relay/relay_simulation.h"

#include <catch2/catch.hpp>

#include "bench/relay/baseline_simulation.h"
#include "bench/relay/task_graph.h"
#include "planner/chain_estimate.h"
#include "planner/partition.h"

namespace baton {
namespace {

// Llama-7B on A100s with the paper's kernel.
SimulatedCluster Paper(double bytes_per_second, double latency) {
  SimulatedCluster cluster;
  cluster.cost.n_layers = 32;
  cluster.cost.token = 7.715e-5 / 32;
  cluster.cost.pair = 1.979e-8 / 32;
  cluster.cost.min_linear = 2.9e-3;
  cluster.cost.kv_bytes = 16384;
  cluster.cost.kernel = PairKernel::kDenseMask;
  cluster.link = {bytes_per_second, latency};
  cluster.append_seconds = 2.0 * 2 * 4096 * 2 / 1.5e12;
  cluster.row_bytes = 8192;
  return cluster;
}

// Llama-3-8B on H100s, causal kernel.
SimulatedCluster Modern(double bytes_per_second) {
  SimulatedCluster cluster;
  cluster.cost.n_layers = 32;
  cluster.cost.token = 2 * 218e6 / 550e12;
  cluster.cost.pair = 4 * 4096 / 450e12;
  cluster.cost.extra_tokens = 128;
  cluster.cost.min_linear = 436e6 / 3e12;
  cluster.cost.kv_bytes = 4096;
  cluster.link = {bytes_per_second, 10e-6};
  cluster.row_bytes = 8192;
  return cluster;
}

std::vector<double> Nominal(int ranks) {
  return std::vector<double>(static_cast<size_t>(ranks), 1.0);
}
std::vector<double> Even(double tokens, int ranks) {
  return std::vector<double>(static_cast<size_t>(ranks), tokens / ranks);
}
std::vector<double> Closed(const SimulatedCluster& cluster, double tokens, int ranks) {
  return ClosedForm(cluster.cost, cluster.link, tokens, 0, Nominal(ranks));
}

double CutThroughSeconds(const SimulatedCluster& cluster, double tokens, int ranks,
                         const CutThrough& options) {
  return SimulateCutThrough(cluster, Closed(cluster, tokens, ranks), 0, options).first_token;
}

double PipelineSeconds(const SimulatedCluster& cluster, double tokens, int stages) {
  return SimulatePipeline(cluster, PipelineChunks(cluster, tokens, stages), stages);
}

TEST_CASE("tasks wait for tasks and for resources") {
  TaskGraph graph(2);
  const TaskGraph::Use first[] = {{0, 2.0}}, both[] = {{0, 1.0}, {1, 3.0}}, second[] = {{1, 1.0}};
  const int a = graph.Add(2, first, {});
  const int b = graph.Add(3, both, {}, 0.5);  // resource 0 is held until 2
  const int after_b[] = {b};
  const int c = graph.Add(1, second, after_b);
  const int after_a[] = {a};
  const int d = graph.Add(1, first, after_a);  // resource 0 is free again at 3
  const std::vector<double> ends = graph.Run();
  CHECK(ends == std::vector<double>{2, 5.5, 6.5, 4});
  CHECK(c + d == 5);
}

TEST_CASE("the reference's figures: a causal kernel at 25 GB/s") {
  const SimulatedCluster cluster = Modern(25e9);
  CHECK(SimulateAccumulating(cluster, Even(8192, 4), 0).first_token == Approx(0.0743459656));
  CHECK(SimulateAccumulating(cluster, Even(32768, 8), 0).first_token == Approx(0.2726133923));
  CHECK(CutThroughSeconds(cluster, 8192, 4, {SegmentOrder::kArrival, 1}) == Approx(0.0664749595));
  CHECK(CutThroughSeconds(cluster, 8192, 4, {SegmentOrder::kAscending, 4}) == Approx(0.0662361095));
  CHECK(CutThroughSeconds(cluster, 8192, 4, {SegmentOrder::kWhole, 4}) == Approx(0.0663511686));
  CHECK(CutThroughSeconds(cluster, 32768, 8, {SegmentOrder::kAscending, 4}) ==
        Approx(0.1921241438));
  const RelayTimes pushed = SimulateCutThrough(cluster, Closed(cluster, 32768, 8), 0,
                                               {SegmentOrder::kAscending, 4, DecodePush::kFair});
  CHECK(pushed.first_token == Approx(0.1983018784));
  CHECK(pushed.kv_complete == Approx(0.1983018784));
  CHECK(SimulateAllGather(cluster, 8192, 4, false) == Approx(0.1054749544));
  CHECK(SimulateAllGather(cluster, 8192, 4, true) == Approx(0.0981448769));
  CHECK(SimulateRing(cluster, 8192, 4) == Approx(0.0908147993));
  CHECK(PipelineSeconds(cluster, 8192, 4) == Approx(0.0893423391));
  CHECK(PipelineSeconds(cluster, 32768, 8) == Approx(0.2329127526));
}

TEST_CASE("chunks of a pipeline are of equal work, and few where there is one stage") {
  const SimulatedCluster cluster = Modern(10e9);
  const std::vector<double> chunks = PipelineChunks(cluster, 16384, 4);
  REQUIRE(chunks.size() > 4);
  double before = 0;
  for (const double chunk : chunks) {
    CHECK(cluster.cost.Layer(chunk, before) ==
          Approx(cluster.cost.Layer(chunks[0], 0)).epsilon(0.01));
    before += chunk;
  }
  CHECK(before == Approx(16384));
  CHECK(chunks.back() < chunks.front());
  CHECK(PipelineChunks(cluster, 16384, 1).size() == 1);
}

TEST_CASE("the reference's figures: the paper's kernel at 10 GB/s") {
  const SimulatedCluster cluster = Paper(10e9, 10e-6);
  const auto chain = [&](const std::vector<double>& slices) {
    return SimulateAccumulating(cluster, slices, 0).first_token;
  };
  CHECK(chain(EqualWork(cluster.cost, 8192, 0, Nominal(4))) == Approx(0.3980984608));
  CHECK(chain(Even(8192, 4)) == Approx(0.5161372831));
  CHECK(chain(EqualWork(cluster.cost, 16384, 0, Nominal(2))) == Approx(2.6790103792));
  CHECK(SimulateAllGather(cluster, 8192, 4, false) == Approx(0.8131068518));
  CHECK(SimulateRing(cluster, 8192, 4) == Approx(0.5225883853));
  // The reference's closed form has no min time of the linear layers; chunks come near it.
  SimulatedCluster without_launches = cluster;
  without_launches.cost.min_linear = 0;
  CHECK(PipelineSeconds(without_launches, 16384, 2) == Approx(1.9742315768));
}

TEST_CASE("the reference's figures: rounds and stages") {
  const CutThrough options{SegmentOrder::kArrival, 1};
  const auto seconds = [&](const SimulatedCluster& cluster, double tokens, RelayShape shape) {
    return SimulateShape(cluster, tokens, 0, shape, options).first_token;
  };
  SimulatedCluster modern = Modern(25e9), paper = Paper(300e9, 10e-6);
  // The reference's closed form has no min time of the linear layers.
  modern.cost.min_linear = paper.cost.min_linear = 0;
  CHECK(seconds(modern, 8192, {4, 1, 1}) == Approx(0.0664749595));
  CHECK(seconds(paper, 16384, {4, 1, 1}) == Approx(1.1594888957));
  CHECK(seconds(paper, 16384, {4, 1, 3}) == Approx(1.0406225902));
  CHECK(seconds(paper, 16384, {2, 2, 4}) == Approx(1.3505006642));
}

TEST_CASE("one stage and one round are the chain") {
  const SimulatedCluster cluster = Modern(10e9);
  for (const DecodePush push : {DecodePush::kNone, DecodePush::kFair, DecodePush::kAfterChain}) {
    const CutThrough options{SegmentOrder::kAscending, 4, push};
    const RelayTimes chain = SimulateCutThrough(cluster, Closed(cluster, 8192, 4), 0, options);
    const RelayTimes shaped = SimulateShape(cluster, 8192, 0, {4, 1, 1}, options);
    CHECK(shaped.first_token == Approx(chain.first_token));
    CHECK(shaped.kv_complete == Approx(chain.kv_complete));
    CHECK(shaped.link_bytes == chain.link_bytes);
  }
}

TEST_CASE("links carry each slice once, and the paper's chain all before it again") {
  const SimulatedCluster cluster = Paper(10e9, 10e-6);
  const std::vector<double> slices = {4096, 2048, 1024, 1024};
  const double layer = cluster.cost.kv_bytes * cluster.cost.n_layers;
  const CutThrough push{SegmentOrder::kAscending, 4, DecodePush::kFair};
  for (const RelayTimes& times :
       {SimulateCutThrough(cluster, slices, 0, push), SimulateAccumulating(cluster, slices, 0)}) {
    CHECK(times.link_bytes.at({0, 1}) == 4096 * layer);
    CHECK(times.link_bytes.at({1, 2}) == 6144 * layer);
    CHECK(times.link_bytes.at({2, 3}) == 7168 * layer);
  }
  for (const DecodePush how : {DecodePush::kFair, DecodePush::kAfterChain}) {
    const RelayTimes pushed =
        SimulateCutThrough(cluster, slices, 0, {SegmentOrder::kAscending, 4, how});
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(pushed.link_bytes.at({rank, 4}) == slices[static_cast<size_t>(rank)] * layer);
    }
  }
}

TEST_CASE("pushes after the chain cost no first token, and end soon after it") {
  for (const double bytes_per_second : {50e9, 25e9, 10e9, 1e9}) {
    for (const int ranks : {1, 2, 4, 8}) {
      const SimulatedCluster cluster = Modern(bytes_per_second);
      const std::vector<double> slices = Closed(cluster, 8192, ranks);
      const auto run = [&](DecodePush push) {
        return SimulateCutThrough(cluster, slices, 0, {SegmentOrder::kAscending, 4, push});
      };
      const RelayTimes none = run(DecodePush::kNone), after = run(DecodePush::kAfterChain);
      const RelayTimes fair = run(DecodePush::kFair);
      CHECK(after.first_token == none.first_token);
      CHECK(fair.first_token >= none.first_token * 0.999);
      // At least the time of the wire, and at most the wire after everything else.
      const double wire = cluster.cost.n_layers * cluster.cost.kv_bytes * 8192 / bytes_per_second;
      CHECK(after.kv_complete >= wire);
      CHECK(after.kv_complete <= none.first_token + wire + 1e-3);
      // If the wire is not the bound, at most a layer's KV after the first token.
      if (wire <= 0.8 * none.first_token) {
        CHECK(after.kv_complete <= none.first_token + wire / cluster.cost.n_layers);
      }
    }
  }
}

TEST_CASE("noise makes nothing faster, and the same seed the same time") {
  const SimulatedCluster quiet = Paper(300e9, 15e-6);
  const std::vector<double> slices = Closed(quiet, 16384, 4);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SimulatedCluster noisy = quiet;
    noisy.noise = {.workers = 4, .factor = 8, .seed = seed};
    const double chain = SimulateAccumulating(noisy, slices, 0).first_token;
    CHECK(chain > SimulateAccumulating(quiet, slices, 0).first_token);
    CHECK(chain == SimulateAccumulating(noisy, slices, 0).first_token);
    CHECK(SimulateCutThrough(noisy, slices, 0, {}).first_token >=
          SimulateCutThrough(quiet, slices, 0, {}).first_token);
    CHECK(SimulateAllGather(noisy, 16384, 4, false) > SimulateAllGather(quiet, 16384, 4, false));
    CHECK(SimulateRing(noisy, 16384, 4) >= SimulateRing(quiet, 16384, 4));
  }
}

TEST_CASE("rounds take as long in the event simulation as they are estimated to") {
  const SimulatedCluster cluster = Modern(25e9);
  for (const int ranks : {2, 4}) {
    for (const int rounds : {2, 3, 4}) {
      std::vector<double> slices;
      double before = 0;
      for (const double part : EqualWork(cluster.cost, 32768, 0, Nominal(rounds))) {
        for (const double slice :
             ClosedForm(cluster.cost, cluster.link, part, before, Nominal(ranks)))
          slices.push_back(slice);
        before += part;
      }
      CHECK(
          ChainSeconds(cluster.cost, cluster.link, slices, 0, Nominal(ranks)) ==
          Approx(SimulateShape(cluster, 32768, 0, {ranks, 1, rounds}, {}).first_token).epsilon(.1));
    }
  }
}

TEST_CASE("no schedule beats its share of the work, and links of no cost lose nothing") {
  for (const SimulatedCluster& cluster : {Modern(1e15), Paper(1e15, 0)}) {
    for (const int ranks : {1, 2, 4, 8}) {
      const double bound = cluster.cost.kernel == PairKernel::kCausal
                               ? cluster.cost.Alone(16384, 0) / ranks * (1 - 1e-9)
                               : 0;
      const std::vector<double> slices = Closed(cluster, 16384, ranks);
      const double chain = SimulateAccumulating(cluster, slices, 0).first_token;
      const double relay = SimulateCutThrough(cluster, slices, 0, {}).first_token;
      CHECK(chain >= bound);
      CHECK(relay >= bound);
      CHECK(relay <= chain * 1.01);
      CHECK(
          relay ==
          Approx(ChainSeconds(cluster.cost, cluster.link, slices, 0, Nominal(ranks))).epsilon(.1));
    }
  }
}

}  // namespace
}  // namespace baton
