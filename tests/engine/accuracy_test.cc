// How far each type of weights and KV is from exact arithmetic: logits from the reference's fp64
// run, and keys and values layer by layer from our fp32 mode, whose own distance from fp64 is
// tested first and is hundreds of times smaller. Models whose weights are random: rounding moves
// their logits further than those of trained ones (demo_eval_test, quantization_test).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/oracle_case.h"
#include "engine/sequence_runner.h"

namespace baton {
namespace {

constexpr int kMostTokens = 704;
const std::vector<std::string> kCases = {
    "llama2",   "llama32",   "qwen2",     "qwen3",     "mistral_window",
    "falcon7b", "falcon40b", "gemma",     "gemma2",    "gemma3",
    "mixtral",  "qwen2_moe", "qwen3_moe", "phi3_long", "deepseek_v2_lite"};

struct Precision {
  std::string dtype, kv_dtype;
  double logits, layers;  // bounds of relative errors: of logits, of K and V of any layer
};
// int8 per output; int4 in groups of 32. Bounds are 1.5 times the worst of all cases.
const std::vector<Precision> kPrecisions = {{"bf16", "bf16", .026, .022},
                                            {"bf16", "int8", .063, 0},
                                            {"int8", "bf16", .12, .11},
                                            {"int4", "bf16", .69, .57}};

std::unique_ptr<Backend> Load(const OracleCase& oracle, const std::string& dtype,
                              const std::string& kv_dtype) {
  EngineOptions options;
  options.model = oracle.folder;
  options.dtype = dtype;
  options.kv_dtype = kv_dtype;
  options.int4_group = 32;
  options.threads = 2;
  options.max_step_tokens = kMostTokens;
  return LoadOrDie(options);
}

// The reference's fp64 logits of a prompt's last position.
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

// What a layer holds of the last position: all keys, then all values.
std::vector<std::vector<float>> LastKv(const Backend& backend, const SequenceRunner& runner,
                                       int position) {
  std::vector<std::vector<float>> layers;
  for (int layer = 0; layer < backend.model().n_layers; ++layer) {
    std::vector<float>& kv = layers.emplace_back();
    const KvShape& shape = backend.kv_layout().shape(layer);
    for (int head = 0; head < shape.heads; ++head) {
      const std::vector<float> key = runner.Key(layer, head, position);
      kv.insert(kv.end(), key.begin(), key.end());
      if (shape.values_in_keys) continue;
      const std::vector<float> value = runner.Value(layer, head, position);
      kv.insert(kv.end(), value.begin(), value.end());
    }
  }
  return layers;
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
  SequenceRunner runner(*backend, kMostTokens);
  for (const OraclePrompt& prompt : oracle.prompts) {
    INFO(prompt.name);
    runner.Restart(static_cast<int>(prompt.tokens.size()));
    CHECK(ErrorOf(runner.FeedLast(prompt.tokens), Gold(oracle, prompt)) <= prompt.bound_fp32);
  }
}

TEST_CASE("every type: logits against fp64, keys and values of every layer against fp32") {
  const Precision precision = GENERATE(from_range(kPrecisions));
  double worst_logits = 0, worst_layer = 0;
  for (const std::string& name : kCases) {
    INFO(name << " " << precision.dtype << ", KV " << precision.kv_dtype);
    const OracleCase oracle = LoadOracleCase(name);
    const OraclePrompt& prompt = Prompt(oracle, "p65");
    const int last = static_cast<int>(prompt.tokens.size()) - 1;
    const auto exact = Load(oracle, "fp32", "bf16");
    SequenceRunner exact_runner(*exact, kMostTokens);
    exact_runner.Restart(last + 1);
    exact_runner.FeedLast(prompt.tokens);
    const auto backend = Load(oracle, precision.dtype, precision.kv_dtype);
    SequenceRunner runner(*backend, kMostTokens);
    runner.Restart(last + 1);
    const double logits = ErrorOf(runner.FeedLast(prompt.tokens), Gold(oracle, prompt));
    CHECK(logits <= precision.logits);
    worst_logits = std::max(worst_logits, logits);
    if (precision.kv_dtype == "int8") continue;  // the numbers of a page are not read back here
    const auto got = LastKv(*backend, runner, last), want = LastKv(*exact, exact_runner, last);
    for (size_t layer = 0; layer < want.size(); ++layer) {
      INFO("layer " << layer);
      const double error = ErrorOf(got[layer], want[layer]);
      CHECK(error <= precision.layers);
      worst_layer = std::max(worst_layer, error);
    }
  }
  std::printf("%s, KV %s: worst logits %.4f, worst layer %.4f\n", precision.dtype.c_str(),
              precision.kv_dtype.c_str(), worst_logits, worst_layer);
}

}  // namespace baton
