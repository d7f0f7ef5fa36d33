// The record of predictions: their errors, and the relays that did not pay.
#include "planner/plan_record.h"

#include <catch2/catch.hpp>

namespace baton {

TEST_CASE("the error is of prompts of this length and these ranks, the newest count most") {
  PlanRecord record;
  CHECK(record.error(4096, 2) == PlanRecord::kFirstError);
  record.Add(4096, 2, {10, 12, 30});
  CHECK(record.error(4096, 2) == Approx(.1 + .25 * (.2 - .1)));
  CHECK(record.error(5000, 2) == record.error(4096, 2));  // up to 8191
  CHECK(record.error(8192, 2) == PlanRecord::kFirstError);
  CHECK(record.error(4096, 3) == PlanRecord::kFirstError);
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, {10, 10.1, 20});
  CHECK(record.error(4096, 2) == Approx(.01).margin(1e-3));
}

TEST_CASE("relays slower than one worker are barred for a while; one outlier bars none") {
  PlanRecord record;
  record.Add(4096, 2, {10, 25, 20});
  CHECK(record.barred(4096, 2));
  CHECK_FALSE(record.barred(4096, 3));
  CHECK_FALSE(record.barred(1024, 2));
  for (int i = 1; i < PlanRecord::kBarredPrompts; ++i) record.Add(4100, 1, {20, 20, 20});
  record.Add(1024, 1, {5, 5, 5});  // another length
  CHECK(record.barred(4096, 2));
  record.Add(4100, 1, {20, 20, 20});
  CHECK_FALSE(record.barred(4096, 2));

  record.Add(4096, 2, {10, 11, 20});
  for (int i = 0; i < 3; ++i) record.Add(4096, 2, {10, 10, 20});
  record.Add(4096, 2, {10, 40, 20});  // .5 on average before, .9 now
  CHECK_FALSE(record.barred(4096, 2));
  record.Add(4096, 2, {10, 40, 20});
  CHECK(record.barred(4096, 2));
  record.Refitted();
  CHECK_FALSE(record.barred(4096, 2));
  // A prompt on one worker is never barred.
  record.Add(4096, 1, {10, 100, 10});
  CHECK_FALSE(record.barred(4096, 1));
}

TEST_CASE("relays that are slower than predicted cost as much more") {
  PlanRecord record;
  CHECK(record.slowness(4096, 2) == 1);
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, {10, 13, 20});
  CHECK(record.slowness(4096, 2) == Approx(1.3).epsilon(1e-3));
  CHECK(record.slowness(512, 2) == 1);
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, {10, 130, 20, true});
  CHECK(record.slowness(4096, 2) == Approx(1.3).epsilon(1e-3));
  for (int i = 0; i < 50; ++i) record.Add(4096, 2, {10, 5, 20});
  CHECK(record.slowness(4096, 2) == 1);  // quicker prompts give no expectation of more speed
}

TEST_CASE(
    "beside other prompts relays are slow only if they are slower than prompts of one worker") {
  PlanRecord record;
  const auto shared = [](double predicted, double actual, double alone) {
    return PlanRecord::Outcome{predicted, actual, alone, true};
  };
  for (int i = 0; i < 20; ++i) record.Add(4096, 1, shared(10, 30, 10));  // overtaken by others
  record.Add(4096, 2, shared(5, 25, 10));
  CHECK_FALSE(record.barred(4096, 2));
  record.Add(4096, 2, shared(5, 60, 10));
  CHECK(record.barred(4096, 2));
  // None of this delay is an error of the prediction.
  CHECK(record.error(4096, 1) == PlanRecord::kFirstError);
  CHECK(record.error(4096, 2) == PlanRecord::kFirstError);
  // Prompts that were quicker than predicted neither excuse a relay, nor bar one that was quicker
  // still.
  for (int i = 0; i < 40; ++i) record.Add(512, 1, shared(10, 5, 10));
  record.Add(512, 2, shared(5, 9, 10));
  CHECK_FALSE(record.barred(512, 2));
  record.Add(256, 2, shared(5, 11, 10));
  CHECK(record.barred(256, 2));
}

}  // namespace baton
