// The engine on a GPU, S3 of the check (docs/CUDA.md): against Hugging Face and the CPU's engine on
// the reference models, and against itself: one digest, whatever the batch, chunk, page, depth,
// graph, slice or order. A program for machines with a GPU, not a test of ctest.
//   baton_gpu_engine_check PLUGIN [options of Catch2]

#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#define CATCH_CONFIG_RUNNER
#include <absl/strings/ascii.h>
#include <catch2/catch.hpp>

#include "engine/cuda/device/gpu/gpu_engine.h"
#include "engine/cuda/plugin_loader.h"
#include "tests/engine/device/emulated_engine.h"
#include "tests/engine/invariance_runs.h"
#include "tests/engine/oracle_comparison.h"

namespace baton {
namespace {

std::string plugin_path;

const CudaPlugin& Plugin() {
  static const absl::StatusOr<CudaPlugin> plugin = CudaPlugin::Load(plugin_path);
  INFO(std::string(plugin.status().message()));
  REQUIRE(plugin.ok());
  return *plugin;
}

// Engines live as long as the backends that were taken from them.
class GpuEngines {
 public:
  std::unique_ptr<Backend> Load(const EngineOptions& engine,
                                const DeviceBackendOptions& backend = {.depth = 1}) {
    const absl::StatusOr<BatonCudaDevice> gpu = Plugin().Open(0);
    REQUIRE(gpu.ok());
    absl::StatusOr<std::unique_ptr<GpuEngine>> made =
        GpuEngine::Create(Plugin().api(), {0, gpu->name, engine, backend}, nullptr, nullptr);
    INFO(std::string(made.status().message()));
    REQUIRE(made.ok());
    engines_.push_back(*std::move(made));
    return engines_.back()->TakeBackend();
  }

 private:
  std::vector<std::unique_ptr<GpuEngine>> engines_;
};

// Names of the reference models that GPUs compute.
std::vector<std::string> GpuCases() {
  std::vector<std::string> cases;
  for (const std::string& name : OracleCases()) {
    const EngineOptions options = OptionsFor(LoadOracleCase(name).model, "bf16");
    const absl::StatusOr<ModelDesc> desc = ReadModelDesc(options.model);
    REQUIRE(desc.ok());
    const absl::Status status = CheckGpuComputes(*desc, options);
    if (status.ok()) {
      cases.push_back(name);
    } else {
      std::printf("left out: %s\n", std::string(status.message()).c_str());
    }
  }
  return cases;
}

TEST_CASE("logits and greedy tokens are those of Hugging Face", "[oracle]") {
  for (const std::string& name : GpuCases()) {
    const OracleCase oracle = LoadOracleCase(name);
    GpuEngines engines;
    ServedModel served(OptionsFor(oracle.model, "bf16"),
                       [&](const EngineOptions& options) { return engines.Load(options); });
    CompareInBf16(name, oracle, served);
  }
}

TEST_CASE("logits are near those of the CPU's engine", "[cpu]") {
  for (const std::string& name : GpuCases()) {
    const OracleCase oracle = LoadOracleCase(name);
    const OraclePrompt& prompt = oracle.prompts.front();
    EngineOptions options = OptionsFor(oracle.model, "bf16");
    const std::unique_ptr<Backend> cpu = LoadOrDie(options);
    GpuEngines engines;
    const std::unique_ptr<Backend> gpu = engines.Load(options);
    std::vector<std::vector<float>> logits;
    for (Backend* const backend : {cpu.get(), gpu.get()}) {
      SequenceRunner runner(*backend, kMaxTokens);
      runner.Restart(static_cast<int>(prompt.tokens.size()));
      logits.push_back(runner.Feed(prompt.tokens, prompt.positions));
    }
    const double error = RelativeError(logits[1].data(), logits[0].data(), logits[0].size());
    std::printf("%s: GPU and CPU differ by %.2e\n", name.c_str(), error);
    CHECK(error < 2e-2);
  }
}

std::vector<DrivenResult> Driven(Backend& backend, uint64_t seed, int n_pages) {
  StepDriver driver(backend, n_pages, seed, [&](Fence fence) { SleepUntil(backend, fence); });
  driver.StopIf([&] { return backend.lost().has_value(); });
  std::vector<DrivenResult> results = driver.Run(Requests(backend.model().vocab));
  const auto lost = backend.lost();
  INFO((lost ? *lost : ""));
  REQUIRE_FALSE(lost.has_value());
  return results;
}

TEST_CASE("order, depth, graphs, pages, chunks, slices and scores change no bit", "[orders]") {
  int n_runs = 0;
  for (const std::string& name : GpuCases()) {
    EngineOptions engine = SmallOptions(LoadOracleCase(name).model);
    GpuEngines engines;
    std::vector<DrivenResult> expected;
    for (const int page_tokens : {16, 64}) {
      engine.page_tokens = page_tokens;
      for (const int depth : {1, 2, 3}) {
        for (const bool uses_graphs : {false, true}) {
          INFO(name << ": pages of " << page_tokens << ", depth " << depth << ", graphs "
                    << uses_graphs);
          const std::unique_ptr<Backend> backend = engines.Load(engine, {depth, uses_graphs});
          for (uint64_t seed = 1; seed <= 3; ++seed) {
            const std::vector<DrivenResult> results =
                Driven(*backend, seed, kPages * 16 / page_tokens + 8);
            if (expected.empty()) expected = results;
            CHECK(IsWhole(results, expected));
            CHECK(Difference(results, expected) == "");
            ++n_runs;
          }
        }
      }
    }
  }
  std::printf("%d runs, one digest per request\n", n_runs);
}

TEST_CASE("a few requests, for compute-sanitizer", "[.][short]") {
  GpuEngines engines;
  for (const std::string name : {"llama32", "qwen2"}) {
    const std::unique_ptr<Backend> backend =
        engines.Load(SmallOptions(LoadOracleCase(name).model), {.depth = 2});
    CHECK(Driven(*backend, 1, kPages + 8).size() == 6);
  }
}

// Digests of the GPU's numerics id: "model digests". A line that should change is printed by the
// check.
constexpr const char* kGoldens = BATON_TEST_DATA "/golden/cuda-sm90-engine.txt";
std::string GoldenOf(const std::string& model) {
  std::ifstream file(kGoldens);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(model + " ")) return line.substr(model.size() + 1);
  return "";
}

TEST_CASE("batch and chunk change no bit of long prompts, and goldens hold", "[batches]") {
  for (const std::string model : {"llama32", "qwen2", "qwen3", "mistral_window", "demo"}) {
    EngineOptions options;
    options.model = ModelOf(model);
    options.threads = 2;
    options.limits.max_step_tokens = 4096;
    GpuEngines engines;
    Trace expected;
    for (const int page_tokens : {64, 32}) {
      options.page_tokens = page_tokens;
      const std::unique_ptr<LocalEngine> engine = EngineOf(engines.Load(options), options);
      const std::vector<LocalRequest> requests = MakeRequests(VocabOf(*engine));
      for (const auto& [batch, chunk] :
           std::vector<std::pair<int, int>>{{1, 0}, {32, 0}, {8, 17}, {3, 128}, {32, 1}}) {
        INFO(model << ": pages of " << page_tokens << ", batch " << batch << ", chunk " << chunk);
        const Trace trace = Run(*engine, requests, batch, chunk);
        if (expected.empty()) expected = trace;
        CHECK(trace == expected);
      }
    }
    const std::string digests(absl::StripAsciiWhitespace(Text(expected.front().second)));
    std::printf("%s %s\n", model.c_str(), digests.c_str());
    CHECK(digests == GoldenOf(model));
  }
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("baton_gpu_engine_check PLUGIN [options of Catch2]\n", stderr);
    return 64;
  }
  baton::plugin_path = argv[1];
  argv[1] = argv[0];
  return Catch::Session().run(argc - 1, argv + 1);
}
