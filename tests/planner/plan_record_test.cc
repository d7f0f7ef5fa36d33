// The record of predictions: the margins by which prompts took longer.
#include "planner/plan_record.h"

#include <catch2/catch.hpp>

namespace baton {

TEST_CASE("a margin is of prompts of this length and these ranks, the newest count most") {
  PlanRecord record;
  CHECK(record.margin(4096, 1) == 1);
  CHECK(record.margin(4096, 2) == PlanRecord::kFirstRelay);
  record.Add(4096, 2, 1.5);
  CHECK(record.margin(4096, 2) == Approx(1.1 + .25 * (1.5 - 1.1)));
  CHECK(record.margin(5000, 2) == record.margin(4096, 2));  // up to 8191
  CHECK(record.margin(8192, 2) == PlanRecord::kFirstRelay);
  CHECK(record.margin(4096, 3) == PlanRecord::kFirstRelay);
  CHECK(record.margin(4096, 1) == 1);
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 1.01);
  CHECK(record.margin(4096, 2) == Approx(1.01).margin(1e-3));
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 0.5);
  CHECK(record.margin(4096, 2) == Approx(.5).margin(1e-3));
}

TEST_CASE("what makes prompts of one worker late makes relays late that nobody has seen") {
  PlanRecord record;
  for (int i = 0; i < 50; ++i) record.Add(4096, 1, 2);
  CHECK(record.margin(4096, 1) == Approx(2).epsilon(1e-3));
  CHECK(record.margin(4096, 2) == Approx(2.2).epsilon(1e-3));
  CHECK(record.margin(512, 2) == PlanRecord::kFirstRelay);
}

TEST_CASE("relays that did not pay are forgotten while others compute such prompts") {
  PlanRecord record;
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, 4);
  CHECK(record.margin(4096, 2) == Approx(4).epsilon(1e-3));
  record.Add(512, 1, 1);  // another length
  CHECK(record.margin(4096, 2) == Approx(4).epsilon(1e-3));
  double before = record.margin(4096, 2);
  for (int i = 0; i < 100; ++i) {
    record.Add(4100, 1, 1);
    CHECK(record.margin(4096, 2) < before);
    before = record.margin(4096, 2);
  }
  CHECK(before < 1.25);
  CHECK(before > PlanRecord::kFirstRelay);
  CHECK(record.margin(4096, 1) == 1);
}

}  // namespace baton
