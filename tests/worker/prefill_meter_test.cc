// The reported cost of a worker's steps predicts whole prompts.
#include "worker/prefill_meter.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>

namespace baton {
namespace {

constexpr int kLayers = 16, kStepTokens = 512;
constexpr PromptStep kWhole{.time = absl::InfiniteDuration(), .max_tokens = kStepTokens};

// Returns the seconds of a step of a 1B shape on two cores; every step costs 30 ms on top of its
// tokens.
double StepSeconds(double tokens, double pairs) {
  return 0.03 + 16 * (3e-4 * tokens + 3.3e-8 * pairs);
}

// Returns the seconds of a prompt alone, in steps.
double SecondsInSteps(int tokens) {
  double seconds = 0;
  for (int begin = 0; begin < tokens; begin += kStepTokens) {
    const int n = std::min(kStepTokens, tokens - begin);
    seconds += StepSeconds(n, CausalPairs(n, begin));
  }
  return seconds;
}

constexpr PrefillCost kShape{.n_layers = kLayers, .kv_bytes = 2048};

double Predict(const PrefillMeter& meter, int tokens) { return meter.cost().Alone(tokens, 0); }

}  // namespace

TEST_CASE("nothing is told before the first step, and that is believed at once") {
  PrefillMeter meter(kShape, kWhole);
  CHECK(meter.cost() == kShape);
  meter.Add(0, 0, 1);
  meter.Add(10, 0, 0);
  CHECK(meter.cost() == kShape);
  meter.Add(100, CausalPairs(100, 0), 0.5);
  CHECK(meter.cost().token == Approx(0.005 / kLayers));
  CHECK(meter.cost().kv_bytes == kShape.kv_bytes);
  CHECK(meter.fitted_tokens() == 100);
  meter.Add(8, CausalPairs(8, 0), 0.1);  // too few tokens to give the cost of a token
  CHECK(meter.fitted_tokens() == 100);
}

TEST_CASE("first costs are told before the first step, and keep what steps do not show") {
  PrefillCost first{.n_layers = kLayers, .token = 3e-4, .pair = 3.3e-8, .extra_tokens = 6};
  PrefillMeter meter(kShape, kWhole, 0, first);
  CHECK(meter.fitted_tokens() >= 1 << 20);
  CHECK(Predict(meter, 8192) == Approx(SecondsInSteps(8192)).epsilon(0.02));
  // The machine is now half as fast: short prompts show it at once; long ones did not occur.
  for (int i = 0; i < 20; ++i) {
    const int tokens = 20 + 10 * i;
    meter.Add(tokens, CausalPairs(tokens, 0), 2 * StepSeconds(tokens, CausalPairs(tokens, 0)));
  }
  CHECK(Predict(meter, 128) == Approx(2 * SecondsInSteps(128)).epsilon(0.05));
  CHECK(meter.cost().pair >= 0.5 * first.pair);
}

TEST_CASE("whole prompts are predicted from steps of several prompts") {
  PrefillMeter meter(kShape, kWhole);
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 200; ++i) {
    double tokens = 0, pairs = 0;
    while (tokens < 64) {  // pieces of one step
      const double n = std::uniform_int_distribution(8, 400)(random);
      tokens += n;
      pairs += CausalPairs(n, 64.0 * std::uniform_int_distribution(0, 128)(random));
    }
    meter.Add(tokens, pairs, StepSeconds(tokens, pairs) * std::exp(0.02 * normal(random)));
  }
  for (const int tokens : {64, 512, 2048, 8192, 32768})
    CHECK(Predict(meter, tokens) == Approx(SecondsInSteps(tokens)).epsilon(0.05));
}

TEST_CASE("a pair's share of a token follows from the model's matrices") {
  ModelDesc model;
  CHECK(PairShareOf(model) == 0);
  const auto read = ModelDesc::FromFolder(BATON_SOURCE_DIR "/tests/data/models/llama2");
  REQUIRE(read.ok());
  model = *read;
  const double width = model.n_heads * model.head_dim, kv = model.kv_width();
  const double layer = model.hidden * (2 * width + 2 * kv + 3.0 * model.intermediate);
  CHECK(PairShareOf(model) == Approx(2 * width / layer).epsilon(.02));  // norms aside
}

// Chunks of short prompts, the first one held up by the disk and others by other processes, tell
// little about attention: it is read from the model.
TEST_CASE("a long prompt is predicted from a few noisy steps of short ones") {
  constexpr double kShare = 3.3e-8 / 3e-4;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    PrefillMeter meter(kShape, kWhole, kShare);
    for (int i = 0; i < 8; ++i) {
      const double tokens = std::uniform_int_distribution(64, 256)(random);
      const double pairs = CausalPairs(tokens, 0);
      const double noise = std::exp(.15 * std::normal_distribution<double>()(random));
      meter.Add(tokens, pairs, StepSeconds(tokens, pairs) * noise * (i == 0 ? 3 : 1));
    }
    CHECK(meter.cost().token > 1.5e-4);
    CHECK(Predict(meter, 4096) < 2 * SecondsInSteps(4096));
    CHECK(Predict(meter, 4096) > SecondsInSteps(4096) / 2);
  }
}

TEST_CASE("a step of prompts alone keeps to its time, before that is known to the least tokens") {
  const PromptStep step{.time = absl::Milliseconds(100), .min_tokens = 32, .max_tokens = 512};
  CHECK(PrefillMeter(kShape, step).StepTokens(0) == 32);
  const auto measured = [&step](double token, double pair) {
    PrefillMeter meter(kShape, step);
    for (int i = 0; i < 400; ++i) {
      const double tokens = 32 + i % 7 * 32, before = 100.0 * (i % 5);
      const double pairs = CausalPairs(tokens, before);
      meter.Add(tokens, pairs, token * tokens + pair * pairs);
    }
    return meter;
  };
  const PrefillMeter meter = measured(5e-4, 1e-7);
  CHECK(meter.StepTokens(0) == Approx(200).epsilon(0.03));
  CHECK(meter.StepTokens(5000) == Approx(100).epsilon(0.1));  // attention doubles a token's time
  CHECK(measured(1e-5, 1e-9).StepTokens(0) == 512);
  CHECK(measured(1e-2, 1e-6).StepTokens(0) == 32);
  // The engine's bound comes first.
  CHECK(PrefillMeter(kShape, {.min_tokens = 128, .max_tokens = 64}).StepTokens(0) == 64);
}

}  // namespace baton
