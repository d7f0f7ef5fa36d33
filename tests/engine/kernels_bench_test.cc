#include "bench/kernels_bench.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

KernelsBenchOptions SmallOptions() {
  KernelsBenchOptions options;
  options.k = 200;
  options.n = 72;
  options.rows = {1, 8, 40};
  options.seconds = 0.001;
  options.stream_bytes = 1 << 20;
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

TEST_CASE("a path this machine lacks fails the benchmark") {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    KernelsBenchOptions options = SmallOptions();
    options.isas = {isa};
    REQUIRE(MeasureKernels(options).ok() == CheckIsaSupported(isa).ok());
  }
}

}  // namespace
}  // namespace baton
