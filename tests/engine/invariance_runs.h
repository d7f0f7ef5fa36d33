// Runs of the invariance tests: engines in different settings, the same requests for all, and the
// results that must be equal.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/machine/isa.h"
#include "engine/load_backend.h"
#include "tests/engine/cpu/kernel_paths.h"
#include "tests/support/local_engine.h"

namespace baton {

// Types of weights and KV, which change the bits.
struct Precision {
  std::string dtype = "bf16", kv_dtype = "bf16";
  int int4_group = 128;
  std::string Name() const { return dtype + (kv_dtype == "bf16" ? "" : ", KV " + kv_dtype); }
};

// Settings that change no bit; chunk and batch are separate.
struct Setting {
  Isa isa = Isa::kAvx2;
  int threads = 1;
  int page_tokens = 64;
};

inline std::string ModelOf(const std::string& name) {
  if (name == "tiny") return std::string("random:") + BATON_TEST_DATA + "/shapes/llama-tiny.json";
  if (name == "tiny-moe")
    return std::string("random:") + BATON_SOURCE_DIR + "/configs/shapes/tiny-moe.json";
  if (name == "demo") return std::string(BATON_SOURCE_DIR) + "/models/demo";
  return std::string(BATON_TEST_DATA) + "/models/" + name;
}

// Returns the paths of this machine.
inline std::vector<Isa> Paths() {
  RequestAmxPermission();
  return SupportedIsas();
}

// model: as in EngineOptions.
inline EngineOptions OptionsOf(const std::string& model, const Setting& setting,
                               const Precision& precision) {
  EngineOptions options;
  options.int4_group = precision.int4_group;
  options.model = model;
  options.dtype = precision.dtype;
  options.kv_dtype = precision.kv_dtype;
  options.isa = precision.dtype == "fp32" ? "auto" : std::string(IsaName(setting.isa));
  options.threads = setting.threads;
  options.page_tokens = setting.page_tokens;
  options.limits.max_step_tokens = 4096;
  return options;
}

// Makes an engine with room for all requests at once.
inline std::unique_ptr<LocalEngine> EngineOf(absl::StatusOr<std::unique_ptr<Backend>> backend,
                                             const EngineOptions& options) {
  INFO(std::string(backend.status().message()));
  REQUIRE(backend.ok());
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(
      *std::move(backend), options.limits.max_step_tokens, 8192 / options.page_tokens);
  INFO(std::string(engine.status().message()));
  REQUIRE(engine.ok());
  return *std::move(engine);
}
inline std::unique_ptr<LocalEngine> MakeEngine(const std::string& model, const Setting& setting,
                                               const Precision& precision = {}) {
  const EngineOptions options = OptionsOf(model, setting, precision);
  return EngineOf(LoadBackend(options, nullptr, nullptr), options);
}
// Makes an engine on kernels with emulated instructions; the path of `setting` does not matter.
inline std::unique_ptr<LocalEngine> MakeEngine(const std::string& model, const Setting& setting,
                                               const Precision& precision, CpuKernels kernels) {
  const EngineOptions options = OptionsOf(model, setting, precision);
  absl::StatusOr<LoadedModel> loaded = OpenModel(options);
  INFO(std::string(loaded.status().message()));
  REQUIRE(loaded.ok());
  return EngineOf(LoadCpuBackend(options, *std::move(loaded), std::move(kernels), nullptr, nullptr),
                  options);
}

// Request 0 is longer than one attention segment of 512 keys; the others are short, with every
// length modulo the sizes that could matter. Some requests sample.
inline std::vector<LocalRequest> MakeRequests(int vocab, int n = 32) {
  std::vector<LocalRequest> requests(n);
  uint32_t state = 12345;
  for (int i = 0; i < n; ++i) {
    const int length = i == 0 ? 607 : 1 + (i * 37) % 75;
    for (int t = 0; t < length; ++t) {
      state = state * 1664525u + 1013904223u;
      requests[i].prompt.push_back(static_cast<int32_t>((state >> 8) % vocab));
    }
    requests[i].max_tokens = 6;
    requests[i].ignore_eos = true;
    if (i % 3 == 1) {
      requests[i].sampling = {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 7u + i};
    }
  }
  return requests;
}

// At most 500, the vocabulary behind the golden digests of the first models.
inline int VocabOf(LocalEngine& engine) { return std::min(500, engine.backend().model().vocab); }

// Results that must be equal, per request: tokens, and digests of the logits they were chosen from.
using Trace = std::vector<std::pair<std::vector<int32_t>, std::vector<uint64_t>>>;

// Formats digests as golden files do.
inline std::string Text(const std::vector<uint64_t>& digests) {
  std::string text;
  for (const uint64_t digest : digests) text += absl::StrFormat("%016x ", digest);
  return text;
}

// Runs requests in batches, their prompts in chunks (0: the whole prompt at once).
inline Trace Run(LocalEngine& engine, std::span<const LocalRequest> requests, int batch,
                 int chunk) {
  Trace trace;
  for (size_t first = 0; first < requests.size(); first += batch) {
    const size_t n = std::min<size_t>(batch, requests.size() - first);
    absl::StatusOr<std::vector<Generation>> results =
        engine.Generate(requests.subspan(first, n), chunk);
    REQUIRE(results.ok());
    for (Generation& result : *results) trace.emplace_back(result.tokens, result.digests);
  }
  REQUIRE(engine.pool().held() == 0);
  return trace;
}

}  // namespace baton
