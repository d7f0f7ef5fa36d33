// The simulated schedules against the reference's own simulator (relay reference 5; its figures
// recomputed for these partitions) and against bounds that hold for any schedule.

#include "bench/relay_simulation.h"

#include <catch2/catch.hpp>

#include "bench/task_graph.h"
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
  cluster.cost.least_linear = 2.9e-3;
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
  cluster.cost.least_linear = 436e6 / 3e12;
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
                                               {SegmentOrder::kAscending, 4, true});
  CHECK(pushed.first_token == Approx(0.1983018784));
  CHECK(pushed.kv_complete == Approx(0.1983018784));
  CHECK(SimulateAllGather(cluster, 8192, 4, false) == Approx(0.1054749544));
  CHECK(SimulateAllGather(cluster, 8192, 4, true) == Approx(0.0981448769));
  CHECK(SimulateRing(cluster, 8192, 4) == Approx(0.0908147993));
  CHECK(SimulatePipeline(cluster, 8192, 4) == Approx(0.0893423391));
  CHECK(SimulatePipeline(cluster, 32768, 8) == Approx(0.2329127526));
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
  CHECK(SimulatePipeline(cluster, 16384, 2) == Approx(2.3245103952));
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

TEST_CASE("the closed form is close to the best of a search") {
  int close = 0, cells = 0;
  for (const double bytes_per_second : {300e9, 50e9, 25e9, 10e9, 1e9}) {
    for (const double tokens : {2048.0, 8192.0, 32768.0}) {
      for (const int ranks : {2, 4}) {
        const SimulatedCluster cluster = Modern(bytes_per_second);
        const double closed = CutThroughSeconds(cluster, tokens, ranks, {});
        double best = closed;
        // One boundary at a time around the closed form: nothing near it is much better.
        const std::vector<double> slices = Closed(cluster, tokens, ranks);
        for (size_t i = 0; i + 1 < slices.size(); ++i) {
          for (const double step : {-0.1, -0.05, -0.02, 0.02, 0.05, 0.1}) {
            std::vector<double> other = slices;
            const double moved = std::max(step * tokens / ranks, 1 - other[i]);
            other[i] += moved;
            other[i + 1] -= moved;
            if (other[i + 1] <= 0) continue;
            best = std::min(best, SimulateCutThrough(cluster, other, 0, {}).first_token);
          }
        }
        ++cells;
        close += closed <= 1.03 * best;
      }
    }
  }
  CHECK(close >= 0.9 * cells);
}

}  // namespace
}  // namespace baton
