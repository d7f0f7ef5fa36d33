// `baton bench step` on a tiny model: every measurement is there, its digests do not depend on
// batch or chunk, and sizes that cannot be are errors.
#include "bench/step_bench.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

StepBenchOptions TinyOptions() {
  StepBenchOptions options;
  options.engine.model = std::string("random:") + BATON_TEST_DATA + "/shapes/llama-tiny.json";
  options.engine.threads = 1;
  options.prompts = {40, 200};
  options.decode = {1, 5};
  options.context = 30;
  options.seconds = 0.01;
  return options;
}

}  // namespace

TEST_CASE("a step benchmark measures what it was asked for") {
  StepBenchOptions options = TinyOptions();
  const auto results = MeasureSteps(options);
  REQUIRE(results.ok());
  REQUIRE(results->size() == 4);
  const char* names[] = {"prefill_40", "prefill_200", "decode_1", "decode_5"};
  for (int i = 0; i < 4; ++i) {
    const KernelResult& result = (*results)[i];
    CHECK(result.name == names[i]);
    CHECK(result.unit == "tok/s");
    CHECK(result.value > 0);
    CHECK(result.limit > 0);
    CHECK(result.digest.size() == 16);
  }
  CHECK((*results)[0].digest != (*results)[1].digest);
  CHECK((*results)[2].digest == (*results)[3].digest);  // the same first sequence, alone or not

  options.engine.max_step_tokens = 7;
  const auto chunked = MeasureSteps(options);
  REQUIRE(chunked.ok());
  for (int i = 0; i < 4; ++i) CHECK((*chunked)[i].digest == (*results)[i].digest);
}

TEST_CASE("step benchmarks of impossible sizes are errors") {
  using Catch::Matchers::Contains;
  const auto error = [](const auto& change) {
    StepBenchOptions options = TinyOptions();
    change(options);
    return std::string(MeasureSteps(options).status().message());
  };
  CHECK_THAT(error([](StepBenchOptions& o) { o.prompts = {2049}; }), Contains("a prompt is 2049"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.decode = {0}; }), Contains("a decode batch is 0"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.context = 2000; }), Contains("context is 2000"));
  CHECK_THAT(error([](StepBenchOptions& o) { o.engine.model = "/nowhere"; }),
             Contains("/nowhere: no such folder"));
}

}  // namespace baton
