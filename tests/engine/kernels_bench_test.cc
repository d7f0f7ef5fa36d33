#include "bench/kernels_bench.h"

#include <catch2/catch.hpp>
#include <set>

namespace baton {
namespace {

KernelsBenchOptions SmallOptions() {
  KernelsBenchOptions options;
  options.k = 200;
  options.n = 72;
  options.rows = {1, 8, 40};
  options.seconds = 0.001;
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
  KernelsBenchOptions options = SmallOptions();
  options.isas = {Isa::kAvx512};
  options.rows = {60};
  options.plain = true;
  if (!CheckIsaSupported(Isa::kAvx512).ok()) {
    WARN("needs AVX-512");
    return;
  }
  const auto results = MeasureKernels(options);
  REQUIRE(results.ok());
  REQUIRE(results->size() == 3);
  const KernelResult &exact = (*results)[0], &plain = (*results)[1], &cost = (*results)[2];
  REQUIRE(exact.name == "linear_avx512_m60");
  REQUIRE(plain.name == "plain_avx512_m60");
  REQUIRE(plain.digest.empty());
  REQUIRE(cost.name == "exactness_cost_avx512_m60");
  REQUIRE(cost.value == Approx(100 * (1 - exact.value / plain.value)));
}

TEST_CASE("a value above its limit is an error that names it") {
  const KernelResult below{"decode_1", 9.0, "tok/s", 10.0, ""},
      above{"decode_1", 11.0, "tok/s", 10.0, ""};
  REQUIRE(CheckBelowLimit(below).ok());
  const absl::Status status = CheckBelowLimit(above);
  REQUIRE(!status.ok());
  REQUIRE_THAT(std::string(status.message()),
               Catch::Matchers::Contains("decode_1 reached 11.0 tok/s"));
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
