// `baton bench attention` on small contexts: every path and number of threads gives one digest for
// the same work.
#include "bench/kernels/attention_bench.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "engine/cpu/machine/isa.h"

namespace baton {

TEST_CASE("every path with any number of threads gives one digest for the same attention") {
  AttentionBenchOptions options;
  options.contexts = {70, 600};
  options.threads = {1, 3};
  options.plan = {.min_samples = 2, .seconds = 0.001};
  options.decode_bytes = 1 << 20;
  const auto results = MeasureAttention(options);
  REQUIRE(results.ok());
  std::map<std::string, std::set<std::string>> digests;
  size_t attention = 0;
  for (const KernelResult& result : *results) {
    INFO(result.name);
    CHECK(result.value > 0);
    if (result.name.rfind("attention", 0) != 0) continue;
    ++attention;
    CHECK(result.name.find("_g4_") != std::string::npos);  // other groups are another result
    CHECK((result.limit > 0 && result.seconds > 0 && result.n_samples >= 2));
    digests[result.name.substr(0, result.name.find("_t"))].insert(result.digest);
  }
  const size_t shapes = 2 * 2 * 2 * 2;  // head sizes, types of KV, contexts, phases
  CHECK(attention == shapes * 2 * SupportedIsas().size());
  CHECK(digests.size() == shapes);
  std::set<std::string> all;
  for (const auto& [work, of_work] : digests) {
    INFO(work);
    CHECK(of_work.size() == 1);
    all.insert(of_work.begin(), of_work.end());
  }
  CHECK(all.size() == shapes);
}

TEST_CASE("a group that no model has fails the attention benchmark") {
  for (const int group : {0, 65}) {
    AttentionBenchOptions options;
    options.group = group;
    CHECK_THAT(std::string(MeasureAttention(options).status().message()),
               Catch::Matchers::Contains("--group"));
  }
}

TEST_CASE("a path this machine lacks fails the attention benchmark") {
  for (const Isa isa : {Isa::kAvx512Bf16, Isa::kAmx}) {
    if (CheckIsaSupported(isa).ok()) continue;
    AttentionBenchOptions options;
    options.isas = {isa};
    CHECK_THAT(std::string(MeasureAttention(options).status().message()),
               Catch::Matchers::Contains(std::string(IsaName(isa))));
  }
}

}  // namespace baton
