// Rows and prompts of one worker, by figures worked out by hand.
#include "router/mixed_steps.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

// Two rows, whose steps of 10 ms have 5 ms for prompts: a third of the time. Of rows with 30 tokens
// left on average the last has 40, and ends after 40 steps of 15 ms.
constexpr StepCost kCost{.base = 0.008, .row = 0.001};
constexpr RowSums kRows{.rows = 2, .keys = 100, .tokens_left = 60};
constexpr double kStretch = 1.5, kRowsEnd = 0.6;

}  // namespace

TEST_CASE("beside rows a prompt takes whole steps; when the rows have ended, it is alone") {
  const MixedSteps mixed(kCost, kRows, kStretch, 0);
  CHECK(mixed.rate() == Approx(1.0 / 3));
  CHECK(mixed.Slowed({.work = 0, .alone = 0.002}) == 0.002);
  CHECK(mixed.Slowed({.work = 0.010, .alone = 0.012}) == Approx(2 * 0.010 + 0.010));
  CHECK(mixed.Slowed({.work = 0.011, .alone = 0.012}) == Approx(3 * 0.010 + 0.011));
  // Until the rows end 0.2 s of the work are done; of the rest a second takes 0.8 s alone.
  CHECK(mixed.Slowed({.work = 0.5, .alone = 0.4}) == Approx(kRowsEnd + 0.3 * 0.8));
}

TEST_CASE("a step in any case has a minimum of work on prompts, which may cost more beside rows") {
  const StepCost twice{.base = 0.008, .row = 0.001, .beside = 2};
  const MixedSteps mixed(twice, kRows, 1, 0.004);  // 8 ms of a step of 18
  CHECK(mixed.rate() == Approx(0.004 / 0.018));
  CHECK(mixed.Slowed({.work = 0.008, .alone = 0.008}) == Approx(2 * 0.018));
}

TEST_CASE("without rows nothing is slowed") {
  const MixedSteps mixed(kCost, {}, kStretch, 0);
  CHECK(mixed.rate() == 1);
  CHECK(mixed.Slowed({.work = 0.010, .alone = 0.012}) == 0.012);
  CHECK(mixed.WaitForStep(true) == 0);
  CHECK(mixed.After(1).rows == 0);
  CHECK(mixed.Lost(1) == 0);
}

TEST_CASE("the next step is half a step away, with the prompts that the step under way has") {
  const MixedSteps mixed(kCost, kRows, kStretch, 0);
  CHECK(mixed.WaitForStep(false) == Approx(0.005));
  CHECK(mixed.WaitForStep(true) == Approx(0.0075));
}

TEST_CASE("rows have made a token a step, until all have ended") {
  const MixedSteps mixed(kCost, kRows, kStretch, 0);
  const RowSums after = mixed.After(10.5 * 0.015);
  CHECK(after.rows == 2);
  CHECK(after.keys == 100);
  CHECK(after.tokens_left == 60 - 21);
  CHECK(mixed.After(kRowsEnd - 0.001).tokens_left == 2);  // the next one of each
  CHECK(mixed.After(kRowsEnd).rows == 0);
}

TEST_CASE("rows lose what is done beside them, as long as they live") {
  const MixedSteps mixed(kCost, kRows, kStretch, 0);
  CHECK(mixed.LostBy(30, 0.010) == Approx(0.010));
  CHECK(mixed.LostBy(1, 0.010) == Approx(0.005));  // in its only step
  CHECK(mixed.Lost(0.010) == Approx(2 * 0.010));
  CHECK(mixed.Lost(10) == Approx(2 * 30 * 0.005));
  CHECK(mixed.MaxLostBy(3) == Approx(0.015));
}

}  // namespace baton
