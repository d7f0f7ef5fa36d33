// Offsets of predictions are learned by kind, from short prompts above all, and no outlier moves
// it.
#include "planner/plan_offset.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr PlanOffset::Kind kLocal{}, kHanded{.hands_over = true}, kWaits{.waits = true};

TEST_CASE("an offset is of its kind; nothing before the second plan") {
  PlanOffset offsets;
  CHECK(offsets.Of(kLocal, 1) == 0);
  offsets.Add(kHanded, 5e-3, 6.5e-3);
  CHECK(offsets.Of(kHanded, 5e-3) == 0);
  offsets.Add(kHanded, 5e-3, 6.5e-3);
  CHECK(offsets.Of(kHanded, 5e-3) == Approx(1.5e-3));
  CHECK(offsets.Of(kHanded, 5) == Approx(1.5e-3));
  CHECK(offsets.Of(kLocal, 5e-3) == 0);
  offsets.Add(kLocal, 5e-3, 4e-3);
  CHECK(offsets.Of(kLocal, 5e-3) == 0);  // one that was early says nothing either
  offsets.Add(kWaits, 5e-3, 5e-2);
  CHECK(offsets.Of(kHanded, 5e-3) == Approx(1.5e-3));
}

TEST_CASE("short prompts tell it; long ones, whose costs are off by more, do not hide it") {
  PlanOffset offsets;
  for (int i = 0; i < 30; ++i) {
    offsets.Add(kLocal, 2e-3, 3e-3);
    offsets.Add(kLocal, 1, 1.1);
  }
  CHECK(offsets.Of(kLocal, 2e-3) == Approx(1e-3));
}

TEST_CASE("prompts that others held up, fewer than half, change nothing; a new state is learned") {
  PlanOffset offsets;
  for (int i = 0; i < 60; ++i) offsets.Add(kLocal, 1e-2, i % 3 == 0 ? 1 : 1.1e-2);
  CHECK(offsets.Of(kLocal, 1e-2) == Approx(1e-3));
  for (int i = 0; i < 40; ++i) offsets.Add(kLocal, 1e-2, 1.5e-2);
  CHECK(offsets.Of(kLocal, 1e-2) == Approx(5e-3));
}

TEST_CASE("a prediction keeps half of itself, however much is found cached") {
  PlanOffset offsets;
  for (int i = 0; i < 10; ++i) offsets.Add(kLocal, 2e-2, 6e-3);
  CHECK(offsets.Of(kLocal, 4e-2) == Approx(-1.4e-2));
  CHECK(offsets.Of(kLocal, 4e-3) == Approx(-2e-3));
}

}  // namespace
}  // namespace baton
