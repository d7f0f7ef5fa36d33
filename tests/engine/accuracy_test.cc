// The distance of each type of weights and KV from exact arithmetic: logits from the reference's
// fp64 run, and every layer's output from its fp32 run, which is hundreds of times nearer to fp64
// than all types except fp32. Weights are random, so rounding moves the logits further than those
// of trained models (demo_eval_test, quantization_test).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_format.h"
#include "engine/cpu/rival_slices.h"
#include "tests/engine/sequence_runner.h"
#include "tests/support/oracle_case.h"

namespace baton {
namespace {

constexpr int kMaxTokens = 704;
const std::vector<std::string> kCases = {
    "llama2",   "llama32",   "qwen2",     "qwen3",     "mistral_window",
    "falcon7b", "falcon40b", "gemma",     "gemma2",    "gemma3",
    "mixtral",  "qwen2_moe", "qwen3_moe", "phi3_long", "deepseek_v2_lite"};

struct Precision {
  std::string dtype, kv_dtype;
  double logits, layers;  // bounds of relative errors: of logits, and of any layer's output
};
// int8 per output; int4 in groups of 32. Bounds are 1.5 times the worst error of all cases.
const std::vector<Precision> kPrecisions = {
    {"fp32", "bf16", 2.1e-6, 2.4e-6}, {"bf16", "bf16", .026, .027}, {"bf16", "int8", .063, .048},
    {"int8", "bf16", .12, .09},       {"int8", "int8", .13, .081},  {"int4", "bf16", .69, .62}};

std::unique_ptr<Backend> Load(const OracleCase& oracle, const std::string& dtype,
                              const std::string& kv_dtype) {
  EngineOptions options;
  options.model = oracle.folder;
  options.dtype = dtype;
  options.kv_dtype = kv_dtype;
  options.int4_group = 32;
  options.threads = 2;
  options.limits.max_step_tokens = kMaxTokens;
  return LoadOrDie(options);
}

// Returns the reference's fp64 logits of a prompt's last position.
std::vector<double> Gold(const OracleCase& oracle, const OraclePrompt& prompt) {
  const TensorView& view = oracle.expected.tensors().at(prompt.name + ".gold_last");
  REQUIRE(view.dtype == "F64");
  std::vector<double> values(view.bytes.size() / sizeof(double));
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

template <typename T>
double ErrorOf(const std::vector<float>& got, const std::vector<T>& exact) {
  REQUIRE(got.size() == exact.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double e = static_cast<double>(exact[i]);
    difference += (got[i] - e) * (got[i] - e);
    size += e * e;
  }
  return std::sqrt(difference / size);
}

// Returns the residual stream of the last position after each layer; the tokens are one slice,
// whose rows can be read between layers.
std::vector<std::vector<float>> LastRows(Backend& backend, const OraclePrompt& prompt) {
  const int n = static_cast<int>(prompt.tokens.size()), n_layers = backend.model().n_layers;
  const auto pool = *KvPool::Create(backend.kv_layout(), backend.kv_layout().PagesFor(n));
  backend.SetPages(pool->pages());
  std::vector<int32_t> pages;
  REQUIRE(pool->Take(pool->total(), &pages));
  StepBuilder step;
  step.AddPiece(prompt.tokens, 0, pages, backend.model().rope.RangeOf(n));
  step.WantLogits(n - 1);
  backend.BeginSlice(step.batch());
  const RivalSlices& slice = dynamic_cast<const RivalSlices&>(backend);
  std::vector<std::byte> bytes(static_cast<size_t>(slice.residual_bytes()));
  const size_t hidden = static_cast<size_t>(backend.model().hidden);
  const bool is_fp32 = bytes.size() == hidden * sizeof(float);
  std::vector<std::vector<float>> layers;
  for (int layer = 0; layer < n_layers; ++layer) {
    backend.ProjectSlice(layer, 0, n);
    backend.FinishSlice(layer, 0, n);
    slice.ReadResidual(n - 1, n, bytes);
    std::vector<float>& row = layers.emplace_back(hidden);
    std::vector<bf16> rounded(is_fp32 ? 0 : hidden);
    if (is_fp32) std::memcpy(row.data(), bytes.data(), bytes.size());
    if (!is_fp32) std::memcpy(rounded.data(), bytes.data(), bytes.size());
    std::transform(rounded.begin(), rounded.end(), row.begin(), Bf16ToFloat);
  }
  pool->Give(pages);
  return layers;
}

// Returns the relative error of the last row of prompt p17 after each layer.
std::vector<double> LayerErrors(const OracleCase& oracle, Backend& backend,
                                const OraclePrompt& prompt) {
  std::vector<double> errors;
  for (const std::vector<float>& row : LastRows(backend, prompt)) {
    const std::vector<float> all =
        oracle.Floats(absl::StrFormat("debug.hidden.layer%d", errors.size()));
    REQUIRE(all.size() == prompt.tokens.size() * row.size());
    errors.push_back(ErrorOf(row, std::vector<float>(all.end() - row.size(), all.end())));
  }
  return errors;
}

const OraclePrompt& Prompt(const OracleCase& oracle, const std::string& name) {
  return *std::find_if(oracle.prompts.begin(), oracle.prompts.end(),
                       [&](const OraclePrompt& prompt) { return prompt.name == name; });
}

}  // namespace

TEST_CASE("fp32: logits of every prompt against fp64") {
  const std::string name = GENERATE(from_range(kCases));
  INFO(name);
  const OracleCase oracle = LoadOracleCase(name);
  const auto backend = Load(oracle, "fp32", "bf16");
  SequenceRunner runner(*backend, kMaxTokens);
  for (const OraclePrompt& prompt : oracle.prompts) {
    INFO(prompt.name);
    runner.Restart(static_cast<int>(prompt.tokens.size()));
    CHECK(ErrorOf(runner.FeedLast(prompt.tokens), Gold(oracle, prompt)) <= prompt.bound_fp32);
  }
}

TEST_CASE("every type: logits against fp64, and what every layer gives") {
  const Precision precision = GENERATE(from_range(kPrecisions));
  double worst_logits = 0, worst_layer = 0;
  for (const std::string& name : kCases) {
    INFO(name << " " << precision.dtype << ", KV " << precision.kv_dtype);
    const OracleCase oracle = LoadOracleCase(name);
    const auto backend = Load(oracle, precision.dtype, precision.kv_dtype);
    for (const double error : LayerErrors(oracle, *backend, Prompt(oracle, "p17"))) {
      CHECK(error <= precision.layers);
      worst_layer = std::max(worst_layer, error);
    }
    const OraclePrompt& prompt = Prompt(oracle, "p65");
    SequenceRunner runner(*backend, kMaxTokens);
    runner.Restart(static_cast<int>(prompt.tokens.size()));
    const double logits = ErrorOf(runner.FeedLast(prompt.tokens), Gold(oracle, prompt));
    CHECK(logits <= precision.logits);
    worst_logits = std::max(worst_logits, logits);
  }
  std::printf("%s, KV %s: worst logits %.2g, worst layer %.2g\n", precision.dtype.c_str(),
              precision.kv_dtype.c_str(), worst_logits, worst_layer);
}

}  // namespace baton
