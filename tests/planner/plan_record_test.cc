// The record of predictions: the margins by which prompts took longer.
#include "planner/plan_record.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace baton {

TEST_CASE("a margin is of prompts of this length and these ranks, the newest count most") {
  PlanRecord record;
  CHECK(record.margin(4096, 1) == 1);
  CHECK(record.margin(4096, 2) == PlanRecord::kFirstRelay);
  record.Add(4096, 2, 1.5);
  const double margin = 1.1 * std::pow(1.5 / 1.1, .25);
  CHECK(record.margin(4096, 2) == Approx(margin));
  CHECK(record.margin(5000, 2) == record.margin(4096, 2));  // up to 8191
  CHECK(record.margin(8192, 2) == PlanRecord::kFirstRelay);
  CHECK(record.margin(4096, 3) == PlanRecord::kFirstRelay);
  CHECK(record.margin(4096, 1) == 1);
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 1.01);
  CHECK(record.margin(4096, 2) == Approx(1.01).margin(1e-3));
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 0.5);
  CHECK(record.margin(4096, 2) == Approx(.5).margin(1e-3));
}

TEST_CASE("what makes prompts of one worker late makes those late that nobody has seen") {
  PlanRecord record;
  for (int i = 0; i < 50; ++i) record.Add(4096, 1, 2);
  CHECK(record.margin(4096, 1) == Approx(2).epsilon(1e-3));
  CHECK(record.margin(4096, 2) == Approx(2.2).epsilon(1e-3));
  CHECK(record.margin(512, 1) == Approx(2).epsilon(1e-3));
  CHECK(record.margin(512, 2) == Approx(2.2).epsilon(1e-3));
  for (int i = 0; i < 50; ++i) record.Add(512, 1, 1);
  CHECK(record.margin(4096, 1) == Approx(2).epsilon(1e-3));  // seen
  CHECK(record.margin(8192, 1) == Approx(1).epsilon(1e-3));
  // Only relays compute such prompts now.
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 3);
  CHECK(record.margin(4096, 1) == Approx(1).epsilon(0.01));
}

TEST_CASE("one prompt that was held up for long does not rule out its kind") {
  PlanRecord record;
  for (int i = 0; i < 20; ++i) record.Add(4096, 2, 1);
  record.Add(4096, 2, 16);
  CHECK(record.margin(4096, 2) == Approx(2).epsilon(0.02));
}

TEST_CASE("relays that did not pay are forgotten while others compute such prompts") {
  PlanRecord record;
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 4);
  CHECK(record.margin(4096, 2) == Approx(4).epsilon(1e-3));
  CHECK(record.margin(4096, 1) == 1);
  record.Add(512, 1, 1);  // another length
  CHECK(record.margin(4096, 2) == Approx(4).epsilon(1e-3));
  double before = record.margin(4096, 2);
  for (int i = 0; i < 50; ++i) {
    record.Add(4100, 1, 1);
    CHECK(record.margin(4096, 2) < before);
    before = record.margin(4096, 2);
  }
  CHECK(before == Approx(PlanRecord::kFirstRelay).epsilon(0.01));
  CHECK(record.margin(4096, 1) == 1);
}

}  // namespace baton
