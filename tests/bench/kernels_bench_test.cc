#include "bench/kernels/kernels_bench.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "engine/cpu/machine/machine_probe.h"

namespace baton {
namespace {

KernelsBenchOptions SmallOptions() {
  KernelsBenchOptions options;
  options.k = 200;
  options.n = 72;
  options.rows = {1, 8, 40};
  options.plan = {.min_samples = 3, .seconds = 0};
  options.stream_bytes = 1 << 20;
  options.plain = false;
  return options;
}

TEST_CASE("every path gives the published digests, whatever the threads") {
  KernelsBenchOptions options = SmallOptions();
  options.threads = GENERATE(1, 3);
  const auto results = MeasureKernels(options);
  REQUIRE(results.ok());
  REQUIRE(results->size() == 3 * SupportedIsas().size());
  const char* expected[] = {"e7614068dbb0d83f", "58db2be2cd19019f", "1d85c4b30c074d16"};
  for (size_t i = 0; i < results->size(); ++i) {
    const KernelResult& result = (*results)[i];
    INFO(result.name);
    REQUIRE(result.digest == expected[i % 3]);
    REQUIRE(!result.note.empty());  // the form of kernels
    REQUIRE(result.value > 0);
    REQUIRE(result.limit > 0);
    REQUIRE((result.unit == "GB/s" || result.unit == "GFLOP/s"));
  }
}

TEST_CASE("integer weights: every path gives one digest per format and rows") {
  KernelsBenchOptions options = SmallOptions();
  options.formats = {{.type = WeightType::kInt8}, {.type = WeightType::kInt4, .group = 64}};
  const auto results = MeasureKernels(options);
  REQUIRE(results.ok());
  const size_t paths = SupportedIsas().size();
  REQUIRE(results->size() == 2 * 3 * paths);
  std::set<std::string> digests;
  for (size_t i = 0; i < results->size(); ++i) {
    const KernelResult& result = (*results)[i];
    INFO(result.name);
    const size_t of_first_path = i / (3 * paths) * (3 * paths) + i % 3;
    REQUIRE(result.digest == (*results)[of_first_path].digest);
    REQUIRE((result.unit == "GB/s" || result.unit == "GOP/s"));
    REQUIRE((result.value > 0 && result.limit > 0));
    digests.insert(result.digest);
  }
  REQUIRE(digests.size() == 6);
}

TEST_CASE("the cost of the exact order is measured where the path has a plain chain") {
  const Isa isa = GENERATE(Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16);
  const std::string name(IsaName(isa));
  if (!CheckIsaSupported(isa).ok()) {
    WARN("needs " + name);
    return;
  }
  KernelsBenchOptions options = SmallOptions();
  options.isas = {isa};
  options.rows = {60};
  options.plain = true;
  options.plan.min_samples = 1;
  const auto results = MeasureKernels(options);
  REQUIRE(results.ok());
  REQUIRE(results->size() == 3);
  const KernelResult &exact = (*results)[0], &plain = (*results)[1], &cost = (*results)[2];
  REQUIRE(exact.name == "linear_" + name + "_m60");
  REQUIRE(plain.name == "plain_" + name + "_m60");
  REQUIRE(plain.digest.empty());
  REQUIRE(cost.name == "exactness_cost_" + name + "_m60");
  REQUIRE(cost.value == Approx(100 * (1 - exact.value / plain.value)));
}

// Integers and floats run on the same units of a core; a vector of 16-bit pairs has two products
// per lane, of 8-bit pairs four; int4 weights need nine such instructions where eight multiply. A
// higher probe result means that the probe did not multiply.
TEST_CASE("the probes of AVX2 multiply as often as they count") {
  if (!CheckIsaSupported(Isa::kAvx2).ok()) {
    WARN("needs AVX2");
    return;
  }
  ComputePool pool(1, 0);
  double floats = 0, int8 = 0, int4 = 0;
  for (int i = 0; i < 10; ++i) {  // the best of several tries on a shared core
    floats = std::max(floats, ProbeDotGflops(Isa::kAvx2, pool));
    int8 = std::max(int8, ProbePeakGops(Isa::kAvx2, WeightType::kInt8, pool));
    int4 = std::max(int4, ProbePeakGops(Isa::kAvx2, WeightType::kInt4, pool));
  }
  REQUIRE(int8 > 0);
  REQUIRE(int8 < 2.2 * floats);
  REQUIRE(int4 > int8);
  REQUIRE(int4 < 4.4 * 8 / 9 * floats);
}

TEST_CASE("a path this machine lacks fails the benchmark") {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    KernelsBenchOptions options = SmallOptions();
    options.isas = {isa};
    REQUIRE(MeasureKernels(options).ok() == CheckIsaSupported(isa).ok());
  }
}

}  // namespace
}  // namespace baton
