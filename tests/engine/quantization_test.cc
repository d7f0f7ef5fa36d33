// The accuracy cost of integer weights: for one output, for a linear layer against fp64, and for
// whole models' logits against their fp32 form.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <random>

#include "engine/cpu/linear/weight_quantizer.h"
#include "tests/engine/cpu/linear_problem.h"
#include "tests/engine/sequence_runner.h"
#include "tests/support/eval_prompts.h"

namespace baton {
namespace {

constexpr WeightFormat kInt8{WeightType::kInt8, 0};
WeightFormat Int4(int group) { return {WeightType::kInt4, group}; }

struct Quantized {
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<float> Weights(WeightFormat format) const {
    const int64_t k = static_cast<int64_t>(values.size());
    std::vector<float> weights;
    for (int64_t i = 0; i < k; ++i) {
      weights.push_back(static_cast<float>(values[i]) * scales[i / format.GroupK(k)]);
    }
    return weights;
  }
};

Quantized Quantize(const std::vector<float>& weights, WeightFormat format) {
  const int64_t k = static_cast<int64_t>(weights.size());
  Quantized result{std::vector<int8_t>(weights.size()),
                   std::vector<float>(static_cast<size_t>(format.Groups(k)))};
  QuantizeOutput(weights.data(), k, format, result.values.data(), result.scales.data());
  return result;
}

std::vector<float> NormalWeights(int64_t k, uint32_t seed, float deviation = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> weights(static_cast<size_t>(k));
  for (float& w : weights) w = Bf16ToFloat(FloatToBf16(normal(random)));
  return weights;
}

EngineOptions OptionsOf(const std::string& model, const std::string& dtype, int group) {
  EngineOptions options;
  options.model = model;
  options.dtype = dtype;
  options.int4_group = group;
  options.threads = 2;
  return options;
}

// The distance of logits from the fp32 form's, over rows: KL divergence (nats), and the number of
// equal most likely tokens.
struct Distance {
  double kl = 0;
  int rows = 0, agree = 0;

  void Add(std::span<const float> exact, std::span<const float> got) {
    const std::vector<double> p = LogProbabilities(exact), q = LogProbabilities(got);
    for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
    ++rows;
    agree += std::max_element(p.begin(), p.end()) - p.begin() ==
             std::max_element(q.begin(), q.end()) - q.begin();
  }
  double MeanKl() const { return kl / rows; }
  double Agreement() const { return 100.0 * agree / rows; }

 private:
  static std::vector<double> LogProbabilities(std::span<const float> logits) {
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - max);
    std::vector<double> result;
    for (const float x : logits) result.push_back(x - max - std::log(sum));
    return result;
  }
};

Distance DistanceOf(const EngineOptions& options,
                    const std::vector<std::vector<int32_t>>& prompts) {
  EngineOptions exact_options = options;
  exact_options.dtype = "fp32";
  const std::unique_ptr<Backend> exact = LoadOrDie(exact_options), backend = LoadOrDie(options);
  SequenceRunner exact_runner(*exact, 512), runner(*backend, 512);
  Distance distance;
  const size_t vocab = static_cast<size_t>(exact->model().vocab);
  for (const std::vector<int32_t>& prompt : prompts) {
    std::vector<int32_t> rows;
    for (size_t i = prompt.size() / 2; i < prompt.size(); ++i) {
      rows.push_back(static_cast<int32_t>(i));
    }
    exact_runner.Restart();
    runner.Restart();
    const std::vector<float> a = exact_runner.Feed(prompt, rows), b = runner.Feed(prompt, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      distance.Add(std::span(a).subspan(i * vocab, vocab), std::span(b).subspan(i * vocab, vocab));
    }
  }
  std::printf("%s %s: mean KL %.5f nats, top-1 agrees in %.1f %% of %d rows\n",
              options.model.substr(options.model.rfind('/') + 1).c_str(),
              backend->numerics_id().c_str(), distance.MeanKl(), distance.Agreement(),
              distance.rows);
  return distance;
}

}  // namespace

TEST_CASE("an output's weights are within the error of their format") {
  const auto [format, bound] = GENERATE(table<WeightFormat, double>(
      {{kInt8, 0.01}, {Int4(128), 0.115}, {Int4(64), 0.105}, {Int4(32), 0.095}}));
  for (const int64_t k : {1, 31, 128, 300, 2048}) {
    const std::vector<float> weights = NormalWeights(k, static_cast<uint32_t>(k));
    const Quantized quantized = Quantize(weights, format);
    const std::vector<float> back = quantized.Weights(format);
    INFO(format.Name() << " k " << k);
    CHECK(RelativeError(back.data(), weights.data(), k) < bound);
    const int min = format.type == WeightType::kInt8 ? -128 : -8;
    for (const int8_t value : quantized.values) CHECK((value >= min && value < -min));
  }
}

TEST_CASE("the scale is better than that of the largest weight") {
  double searched = 0, plain = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> weights = NormalWeights(128, seed);
    const std::vector<float> back = Quantize(weights, Int4(128)).Weights(Int4(128));
    float max = 0;
    for (const float w : weights) max = std::max(max, std::fabs(w));
    for (size_t i = 0; i < weights.size(); ++i) {
      const double w = weights[i], step = max / 7.0;
      searched += std::pow(back[i] - w, 2);
      plain += std::pow(std::nearbyint(w / step) * step - w, 2);
    }
  }
  CHECK(searched < 0.85 * plain);
}

TEST_CASE("weights that are integers times a scale come out as they were") {
  const WeightFormat format =
      GENERATE(values<WeightFormat>({kInt8, Int4(128), Int4(64), Int4(32)}));
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const int64_t k = 32 + seed % 5 * 67;
    const Quantized once =
        Quantize(NormalWeights(k, seed, 1e-6f * static_cast<float>(1 + seed)), format);
    const Quantized twice = Quantize(once.Weights(format), format);
    INFO(format.Name() << " seed " << seed);
    REQUIRE(twice.Weights(format) == once.Weights(format));
  }
}

TEST_CASE("nothing but zeros, and weights too small for a scale, are zero") {
  for (const WeightFormat format : {kInt8, Int4(32)}) {
    for (const float w : {0.0f, -0.0f, 0x1p-110f, -0x1p-130f}) {
      const Quantized quantized = Quantize(std::vector<float>(40, w), format);
      for (const int8_t value : quantized.values) CHECK(value == 0);
      for (const float scale : quantized.scales) CHECK(scale == 0);
    }
  }
}

TEST_CASE("a layer's outputs against fp64: the error of weights and activations, no more") {
  const auto [format, bound] = GENERATE(table<WeightFormat, double>(
      {{kInt8, 0.015}, {Int4(128), 0.12}, {Int4(64), 0.11}, {Int4(32), 0.10}}));
  constexpr int64_t kN = 64, kK = 1024, kRows = 8;
  std::vector<std::byte> memory(static_cast<size_t>(PackedWeights::Bytes(kN, kK, format)) + 64);
  void* packed = memory.data();
  size_t room = memory.size();
  std::align(64, room - 64, packed, room);
  std::vector<std::vector<float>> weights;
  for (int64_t n = 0; n < kN; ++n) weights.push_back(NormalWeights(kK, static_cast<uint32_t>(n)));
  for (int64_t n = 0; n < kN; n += 16) {
    std::vector<int8_t> values;
    std::vector<float> scales;
    for (int64_t i = n; i < n + 16; ++i) {
      const Quantized q = Quantize(weights[i], format);
      values.insert(values.end(), q.values.begin(), q.values.end());
      scales.insert(scales.end(), q.scales.begin(), q.scales.end());
    }
    PackIntegerBlock(values.data(), scales.data(), 16, kK, format,
                     static_cast<std::byte*>(packed) + n / 16 * format.BlockBytes(kK));
  }
  std::vector<bf16> x;
  for (int64_t row = 0; row < kRows; ++row) {
    for (const float v : NormalWeights(kK, 1000 + static_cast<uint32_t>(row), 1.0f)) {
      x.push_back(FloatToBf16(v));
    }
  }
  std::vector<float> y(kRows * kN);
  LinearArgs args;
  args.x = x.data();
  args.x_stride = kK;
  args.rows = kRows;
  args.weights = {packed, kN, kK, format};
  args.epilogue = Epilogue::kFp32;
  args.y_fp32 = y.data();
  args.y_stride = kN;
  ComputePool pool(1, 0);
  auto kernels = MakeLinearKernels(Isa::kAvx2);
  REQUIRE(kernels.ok());
  (*kernels)->Run(args, pool);
  std::vector<double> exact(kRows * kN);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t n = 0; n < kN; ++n) {
      for (int64_t k = 0; k < kK; ++k) {
        exact[row * kN + n] +=
            static_cast<double>(Bf16ToFloat(x[row * kK + k])) * static_cast<double>(weights[n][k]);
      }
    }
  }
  const double error = RelativeError(y.data(), exact.data(), kRows * kN);
  INFO(format.Name() << " " << error);
  CHECK(error < bound);
  CHECK(error > bound / 4);  // otherwise the bound is too loose
}

TEST_CASE("logits of the demo model with integer weights: divergence from fp32") {
  const auto [dtype, group, max_kl, min_agreement] =
      GENERATE(table<std::string, int, double, double>({{"bf16", 128, 0.002, 98.5},
                                                        {"int8", 128, 0.005, 95.5},
                                                        {"int4", 128, 0.18, 88.0},
                                                        {"int4", 32, 0.10, 92.0}}));
  std::vector<std::vector<int32_t>> prompts;
  int index = 0;
  for (const EvalPrompt& prompt : ReadEvalPrompts()) {
    if (index++ % 60 == 0 && prompt.prompt.size() < 200) prompts.push_back(prompt.prompt);
  }
  const Distance distance =
      DistanceOf(OptionsOf(std::string(BATON_SOURCE_DIR) + "/models/demo", dtype, group), prompts);
  CHECK(distance.rows > 200);
  CHECK(distance.MeanKl() < max_kl);
  CHECK(distance.Agreement() > min_agreement);
}

}  // namespace baton
