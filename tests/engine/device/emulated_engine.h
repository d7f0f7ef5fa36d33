// Engines on emulated devices, and the requests that they are compared by with the CPU's engine.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/device/device_backend.h"
#include "engine/cuda/device/emulated/cpu_step_kernels.h"
#include "tests/engine/device/step_driver.h"
#include "tests/engine/served_model.h"

namespace baton {

constexpr int kPages = 20;  // of 16 tokens: for two or three requests at once

inline EngineOptions SmallOptions(const std::string& model) {
  EngineOptions options;
  options.model = model;
  options.threads = 1;
  options.page_tokens = 16;
  options.limits.max_step_tokens = 40;
  options.limits.max_slice_tokens = 128;
  return options;
}

inline std::vector<DrivenRequest> Requests(int vocab) {
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

// The first difference from what was expected, of all that results have; empty: there is none.
inline std::string Difference(const std::vector<DrivenResult>& results,
                              const std::vector<DrivenResult>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string request = "request " + std::to_string(i);
    if (results[i].sampled.size() > expected[i].sampled.size()) return request + " is longer";
    for (size_t t = 0; t < results[i].sampled.size(); ++t) {
      const SampledToken &a = results[i].sampled[t], &b = expected[i].sampled[t];
      if (a.digest != b.digest || a.token != b.token || a.logprob != b.logprob ||
          a.logprobs != b.logprobs) {
        return request + " differs at token " + std::to_string(t);
      }
    }
    for (const auto& [position, score] : results[i].scored) {  // each run scores others
      const auto other = expected[i].scored.find(position);
      if (other != expected[i].scored.end() && score != other->second)
        return request + " has another score at " + std::to_string(position);
    }
  }
  return "";
}

inline bool IsWhole(const std::vector<DrivenResult>& results,
                    const std::vector<DrivenResult>& expected) {
  return std::equal(results.begin(), results.end(), expected.begin(), expected.end(),
                    [](const DrivenResult& a, const DrivenResult& b) {
                      return a.sampled.size() == b.sampled.size();
                    });
}

inline std::vector<DrivenResult> OnCpu(const EngineOptions& options) {
  const std::unique_ptr<Backend> cpu = LoadOrDie(options);
  StepDriver driver(*cpu, kPages, 1, [](Fence) { FAIL("the CPU's fences are reached"); });
  return driver.Run(Requests(cpu->model().vocab));
}

// An engine on an emulated device of its own.
struct Emulated {
  using Wrap = std::function<std::unique_ptr<Device>(EmulatedDevice&)>;

  // wrap: makes what the engine sees of the device; null: the device itself.
  Emulated(const EngineOptions& engine, const EmulatedOptions& options,
           const DeviceBackendOptions& backend_options, const Wrap& wrap = nullptr)
      : kernels(LoadOrDie(engine)), device(options) {
    kernels.AddTo(device.work().runner());
    if (wrap != nullptr) wrapped = wrap(device);
    Device& seen = wrapped == nullptr ? static_cast<Device&>(device) : *wrapped;
    absl::StatusOr<std::unique_ptr<DeviceBackend>> made =
        DeviceBackend::Create(seen, kernels.model(), backend_options);
    status = made.status();
    if (made.ok()) backend = *std::move(made);
  }
  // Runs the requests in virtual time.
  std::vector<DrivenResult> Run(uint64_t seed) {
    StepDriver driver(*backend, kPages, seed, [&](Fence) { device.work().ExecuteNext(); });
    driver.StopIf([&] { return backend->lost().has_value(); });
    std::vector<DrivenResult> results = driver.Run(Requests(backend->model().vocab));
    n_fed = driver.n_fed();
    n_behind = driver.n_behind();
    blocking_calls = device.work().counts().blocking_calls;
    return results;
  }
  std::string Reports() {
    std::string all;
    for (const std::string& report : device.order().reports()) all += report + "\n";
    return all;
  }

  CpuStepKernels kernels;
  EmulatedDevice device;
  std::unique_ptr<Device> wrapped;
  absl::Status status;
  std::unique_ptr<DeviceBackend> backend;
  int64_t n_fed = 0, n_behind = 0;
  uint64_t blocking_calls = 0;
};

inline EmulatedOptions Seeded(uint64_t seed) {
  return {.memory_bytes = int64_t{256} << 20, .seed = seed};
}

}  // namespace baton
