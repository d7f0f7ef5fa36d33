// The transfer benchmark moves the right bytes; `kvtransfer_bench_test "[measure]"` prints its
// table (also: `baton bench transfer`). That is hidden because it measures for long and checks no
// more than the others do.
#include "bench/transfer_bench.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("the transfer benchmark runs and verifies what it moves") {
  const auto results = MeasureTransfer({.seconds = 0.01, .handoff_bytes = 16 << 20});
  INFO(results.status());
  REQUIRE(results.ok());
  REQUIRE(results->size() == 10);
  for (const KernelResult& result : *results) CHECK(result.value > 0);
}

TEST_CASE("the transfer benchmark compares handoffs with MACs with those without") {
  const auto results = MeasureTransfer({.seconds = 0.01, .handoff_bytes = 16 << 20, .macs = true});
  INFO(results.status());
  REQUIRE(results.ok());
  REQUIRE(results->size() == 12);
  for (const KernelResult& result : *results) CHECK(result.value > 0);
}

TEST_CASE("the transfer benchmark compares shared memory with tcp in turns") {
  const auto results = MeasureBesideTcp(
      {.seconds = 0.01, .handoff_bytes = 16 << 20, .transport = KvTransport::kShm});
  INFO(results.status());
  REQUIRE(results.ok());
  REQUIRE(results->size() == 16);
  for (const KernelResult& result : *results) CHECK(result.value > 0);
}

TEST_CASE("measure", "[.][measure]") { REQUIRE(RunTransferBench({}).ok()); }

}  // namespace
}  // namespace baton
