// The effect of integer weights and int8 KV on the probabilities of every reference model: KL
// divergence from transformers' fp32 run, and the share of equal most likely tokens. The weights
// are random, so int4 moves them far; the trained model is in quantization_test.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

#include "tests/engine/served_model.h"

namespace baton {
namespace {

// Returns the KL divergence of softmax(b) from softmax(a), of n logits.
double Divergence(const float* a, const float* b, int n) {
  const auto log_sum = [n](const float* x) {
    const double max = double{*std::max_element(x, x + n)};
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += std::exp(double{x[i]} - max);
    return max + std::log(sum);
  };
  const double log_a = log_sum(a), log_b = log_sum(b);
  double divergence = 0;
  for (int i = 0; i < n; ++i) {
    const double of_a = double{a[i]} - log_a, of_b = double{b[i]} - log_b;
    divergence += std::exp(of_a) * (of_a - of_b);
  }
  return divergence;
}

// The distance over all stored rows of a case. Medians, because in models with experts a few rows
// lie near a tie of the router, take other experts and move far.
struct Distance {
  double median_error = 0, median_divergence = 0;
  int rows = 0, agreeing = 0;
  double agreement() const { return 1.0 * agreeing / rows; }
};

Distance DistanceOf(const OracleCase& oracle, const EngineOptions& options) {
  ServedModel served(options);
  Distance distance;
  std::vector<double> errors, divergences;
  for (const OraclePrompt& prompt : oracle.prompts) {
    SequenceRunner& runner = served.For(prompt);
    runner.Restart(static_cast<int>(prompt.tokens.size()));
    const std::vector<float> logits = runner.Feed(prompt.tokens, prompt.positions);
    const int vocab = served.backend().model().vocab;
    for (size_t row = 0; row < prompt.positions.size(); ++row) {
      const float* const ours = &logits[row * vocab];
      const float* const exact = &prompt.logits[row * vocab];
      errors.push_back(RelativeError(ours, exact, vocab));
      divergences.push_back(Divergence(exact, ours, vocab));
      distance.agreeing += std::max_element(ours, ours + vocab) - ours ==
                           std::max_element(exact, exact + vocab) - exact;
      ++distance.rows;
    }
  }
  const auto median = [](std::vector<double>& x) {
    std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
    return x[x.size() / 2];
  };
  distance.median_error = median(errors);
  distance.median_divergence = median(divergences);
  return distance;
}

// Bounds are 1.5 times the worst of all cases; for agreement, 1.5 times the share of different
// rows.
struct Precision {
  std::string dtype, kv_dtype;
  int int4_group;
  double max_error, max_divergence, min_agreement;
};
const std::vector<Precision> kPrecisions = {
    {"bf16", "bf16", 128, .022, .0007, .938}, {"bf16", "int8", 128, .036, .002, .929},
    {"int8", "bf16", 128, .078, .0081, .866}, {"int8", "int8", 128, .082, .0087, .831},
    {"int4", "bf16", 32, .59, .44, .218},     {"int4", "bf16", 128, .71, .57, .184}};

}  // namespace

TEST_CASE("logits of every reference model in every type: divergence from transformers") {
  const Precision precision = GENERATE(from_range(kPrecisions));
  Distance worst{0, 0, 1, 1};
  for (const std::string& name : OracleCases()) {
    INFO(name << " " << precision.dtype << ", KV " << precision.kv_dtype);
    const OracleCase oracle = LoadOracleCase(name);
    EngineOptions options = OptionsFor(oracle.folder, precision.dtype);
    options.kv_dtype = precision.kv_dtype;
    options.int4_group = precision.int4_group;
    const Distance distance = DistanceOf(oracle, options);
    CHECK(distance.median_error < precision.max_error);
    CHECK(distance.median_divergence < precision.max_divergence);
    CHECK(distance.agreement() > precision.min_agreement);
    worst.median_error = std::max(worst.median_error, distance.median_error);
    worst.median_divergence = std::max(worst.median_divergence, distance.median_divergence);
    if (distance.agreement() < worst.agreement()) {
      worst.agreeing = distance.agreeing;
      worst.rows = distance.rows;
    }
  }
  std::printf("worst of %s, KV %s, groups of %d: error %.4f, divergence %.2g, top-1 %.1f %%\n",
              precision.dtype.c_str(), precision.kv_dtype.c_str(), precision.int4_group,
              worst.median_error, worst.median_divergence, 100 * worst.agreement());
}

}  // namespace baton
