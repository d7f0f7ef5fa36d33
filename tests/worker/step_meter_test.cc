// The reported cost of a worker's steps with rows predicts them, and those with prompt tokens.
#include "worker/step_meter.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace baton {
namespace {

// A small model on two cores: 3 ms, .2 ms per row, 1 ms per thousand keys; prompt tokens take 1.3
// times as long as in steps of their own.
constexpr StepCost kTruth{.base = 3e-3, .row = 2e-4, .key = 1e-6, .beside = 1.3};

struct Row {
  double keys = 0, left = 0;
};

// Steps as they come on a worker: rows join and leave, each reads one key more in every step, and
// now and then prompts share the steps for a while.
struct Steps {
  explicit Steps(unsigned seed) : random(seed) {}

  double Pick(double from, double to) { return std::uniform_real_distribution(from, to)(random); }
  void Next() {
    std::erase_if(rows, [](const Row& row) { return row.left <= 0; });
    if (rows.empty() || (rows.size() < 8 && Pick(0, 1) < .08))
      rows.push_back({.keys = Pick(50, 3000), .left = Pick(20, 200)});
    keys = 0;
    for (Row& row : rows) {
      keys += ++row.keys;
      --row.left;
    }
    if (Pick(0, 1) < .03) mixed_left = static_cast<int>(Pick(1, 20));
    prefill_seconds = mixed_left-- > 0 ? Pick(5e-4, 3e-3) : 0;
  }
  double Seconds(const StepCost& cost) const {
    return cost.Seconds(static_cast<double>(rows.size()), keys) + cost.beside * prefill_seconds;
  }
  // With noise, and every twentieth step held up by the machine.
  double Measured(const StepCost& cost, double noise) {
    const double held_up = noise > 0 && Pick(0, 1) < .05 ? Pick(1, 3) : 1;
    return Seconds(cost) * std::exp(noise * std::normal_distribution<double>()(random)) * held_up;
  }
  void AddTo(StepMeter* meter, const StepCost& truth, double noise) {
    Next();
    meter->Add(static_cast<double>(rows.size()), keys, prefill_seconds, Measured(truth, noise));
  }

  std::mt19937 random;
  std::vector<Row> rows;
  double keys = 0, prefill_seconds = 0;
  int mixed_left = 0;
};

// The error of nine tenths of the next steps, predicted by what is known before each.
double P90Error(StepMeter* meter, Steps* steps, const StepCost& truth, double noise, int n) {
  std::vector<double> errors;
  for (int i = 0; i < n; ++i) {
    const StepCost told = meter->cost();
    steps->AddTo(meter, truth, noise);
    errors.push_back(std::abs(steps->Seconds(told) / steps->Seconds(truth) - 1));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() * 9 / 10];
}

}  // namespace

TEST_CASE("the first step is believed at once, and nonsense is not") {
  StepMeter meter;
  CHECK_FALSE(meter.cost().is_known());
  meter.Add(0, 0, 0, 1);
  meter.Add(2, 100, 0, 0);
  CHECK_FALSE(meter.cost().is_known());
  meter.Add(2, 100, 0, 4e-3);
  CHECK(meter.cost().Seconds(2, 100) == Approx(4e-3));
  CHECK(meter.cost().beside == 1);
  StepMeter mixed;
  mixed.Add(2, 100, 5e-3, 4e-3);  // the prompt's part alone is predicted to take longer
  CHECK_FALSE(mixed.cost().is_known());
  mixed.Add(2, 100, 1e-3, 4e-3);
  CHECK(mixed.cost().Seconds(2, 100) == Approx(3e-3));
}

TEST_CASE("exact steps give the cost") {
  StepMeter meter;
  Steps steps(1);
  for (int i = 0; i < 2000; ++i) steps.AddTo(&meter, kTruth, 0);
  const StepCost cost = meter.cost();
  CHECK(cost.base == Approx(kTruth.base).epsilon(.03));
  CHECK(cost.row == Approx(kTruth.row).epsilon(.1));
  CHECK(cost.key == Approx(kTruth.key).epsilon(.05));
  CHECK(cost.beside == Approx(kTruth.beside).epsilon(.03));
}

TEST_CASE("steps, mixed ones among them, are predicted through noise") {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
    StepMeter meter;
    Steps steps(seed);
    for (int i = 0; i < 50; ++i) steps.AddTo(&meter, kTruth, .1);
    const double error = P90Error(&meter, &steps, kTruth, .1, 3000);
    CAPTURE(seed, error);
    CHECK(error < .1);
  }
}

TEST_CASE("a machine that becomes twice as slow is believed") {
  StepMeter meter;
  Steps steps(7);
  for (int i = 0; i < 500; ++i) steps.AddTo(&meter, kTruth, .05);
  const StepCost slow{.base = 6e-3, .row = 4e-4, .key = 2e-6, .beside = 1.3};
  for (int i = 0; i < 200; ++i) steps.AddTo(&meter, slow, .05);
  CHECK(P90Error(&meter, &steps, slow, .05, 300) < .1);
}

TEST_CASE("what long stretches of equal steps do not show is kept") {
  StepMeter meter;
  Steps steps(8);
  for (int i = 0; i < 500; ++i) steps.AddTo(&meter, kTruth, .02);
  const StepCost before = meter.cost();
  for (int i = 0; i < 20000; ++i) meter.Add(4, 2000, 0, kTruth.Seconds(4, 2000));
  const StepCost after = meter.cost();
  CHECK(after.Seconds(4, 2000) == Approx(kTruth.Seconds(4, 2000)).epsilon(.01));
  CHECK(after.beside == Approx(before.beside).epsilon(.1));
  CHECK(after.Seconds(8, 8000) == Approx(kTruth.Seconds(8, 8000)).epsilon(.2));
}

}  // namespace baton
