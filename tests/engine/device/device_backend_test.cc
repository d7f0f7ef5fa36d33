// The engine on an emulated device gives the tokens, log-probabilities and digests of the CPU's
// engine, for every family, at every depth, with graphs and without, whatever order of operations a
// seed draws; and no wait is missing.

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "engine/device/device_backend.h"
#include "engine/device/emulated/cpu_step_kernels.h"
#include "engine/device/emulated/device_thread.h"
#include "tests/engine/device/step_driver.h"
#include "tests/engine/served_model.h"

namespace baton {
namespace {

constexpr int kPages = 20;  // of 16 tokens: for two or three requests at once

EngineOptions SmallOptions(const std::string& model) {
  EngineOptions options;
  options.model = model;
  options.threads = 1;
  options.page_tokens = 16;
  options.limits.max_step_tokens = 40;
  options.limits.max_slice_tokens = 128;
  return options;
}

std::string PathOf(const std::string& name) { return LoadOracleCase(name).model; }

std::vector<DrivenRequest> Requests(int vocab) {
  std::mt19937_64 random(7);
  std::vector<DrivenRequest> requests(6);
  for (size_t i = 0; i < requests.size(); ++i) {
    DrivenRequest& request = requests[i];
    request.prompt.resize(1 + random() % 70);
    for (int32_t& token : request.prompt)
      token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    request.max_tokens = 4 + static_cast<int>(random() % 12);
    request.sampling.temperature = i % 2 == 0 ? 0 : 1;
    request.sampling.seed = i;
    if (i % 3 == 0) request.sampling.top_logprobs = 3;
    if (i == 4) request.sampling.frequency_penalty = 0.5;  // looks back
    if (i == 5) request.sampling.logprob_tokens = {1, 2};
  }
  return requests;
}

void CheckSame(const std::vector<DrivenResult>& results,
               const std::vector<DrivenResult>& expected) {
  REQUIRE(results.size() == expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    REQUIRE(results[i].sampled.size() == expected[i].sampled.size());
    for (size_t t = 0; t < results[i].sampled.size(); ++t) {
      const SampledToken &a = results[i].sampled[t], &b = expected[i].sampled[t];
      INFO("request " << i << ", token " << t);
      CHECK(a.digest == b.digest);
      CHECK(a.token == b.token);
      CHECK(a.logprob == b.logprob);
      CHECK(a.logprobs == b.logprobs);
    }
    for (const auto& [position, score] : results[i].scored)  // each run scores others
      if (const auto other = expected[i].scored.find(position); other != expected[i].scored.end())
        CHECK(score == other->second);
  }
}

std::vector<DrivenResult> OnCpu(const EngineOptions& options) {
  const std::unique_ptr<Backend> cpu = LoadOrDie(options);
  StepDriver driver(*cpu, kPages, 1, [] { FAIL("the CPU's fences are reached"); });
  return driver.Run(Requests(cpu->model().vocab));
}

// An engine on an emulated device of its own.
struct Emulated {
  explicit Emulated(const EngineOptions& engine, const EmulatedOptions& options,
                    const DeviceBackendOptions& backend_options)
      : kernels(LoadOrDie(engine)), device(options) {
    kernels.AddTo(device.work());
    absl::StatusOr<std::unique_ptr<DeviceBackend>> made =
        DeviceBackend::Create(device, kernels.model(), backend_options);
    REQUIRE(made.ok());
    backend = *std::move(made);
  }
  std::string Reports() {
    std::string all;
    for (const std::string& report : device.order().reports()) all += report + "\n";
    return all;
  }

  CpuStepKernels kernels;
  EmulatedDevice device;
  std::unique_ptr<DeviceBackend> backend;
};

EmulatedOptions Seeded(uint64_t seed) { return {.memory_bytes = int64_t{256} << 20, .seed = seed}; }

void CheckOnDevice(const EngineOptions& engine, const std::vector<DrivenResult>& expected,
                   const DeviceBackendOptions& options, uint64_t seed, int64_t* n_fed = nullptr) {
  INFO("depth " << options.depth << ", graphs " << options.uses_graphs << ", seed " << seed);
  Emulated e(engine, Seeded(seed), options);
  std::vector<DrivenResult> results;
  {
    StepDriver driver(*e.backend, kPages, seed, [&] { REQUIRE(e.device.work().ExecuteNext()); });
    results = driver.Run(Requests(e.backend->model().vocab));
    if (n_fed != nullptr) *n_fed += driver.n_fed();
  }
  INFO(e.Reports());
  CHECK(e.device.order().total() == 0);
  CHECK_FALSE(e.backend->lost().has_value());
  CHECK(e.device.work().counts().pageable_copies == 0);
  CheckSame(results, expected);
}

bool HasPlanesApart(const EngineOptions& options) {
  return LoadOrDie(options)->kv_layout().planes_apart();
}

TEST_CASE("every family computes on an emulated device what it computes on the CPU") {
  int n_models = 0;
  for (const std::string& name : OracleCases()) {
    INFO(name);
    const EngineOptions engine = SmallOptions(PathOf(name));
    if (HasPlanesApart(engine)) continue;  // refused: below
    ++n_models;
    const std::vector<DrivenResult> expected = OnCpu(engine);
    CheckOnDevice(engine, expected, {.depth = 2}, 1);
  }
  CHECK(n_models == 20);
}

TEST_CASE("depth, graphs and the order of operations change nothing") {
  const EngineOptions engine = SmallOptions(PathOf("qwen2"));
  const std::vector<DrivenResult> expected = OnCpu(engine);
  for (const int depth : {1, 2, 3}) {
    int64_t n_fed = 0;
    for (const bool uses_graphs : {true, false})
      for (uint64_t seed = 1; seed <= 4; ++seed)
        CheckOnDevice(engine, expected, {depth, uses_graphs}, seed, &n_fed);
    CHECK((n_fed > 0) == (depth > 1));
  }
}

}  // namespace
}  // namespace baton
