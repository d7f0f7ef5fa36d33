// A row is expected to need still what follows from how long recent answers were.
#include "router/output_record.h"

#include <catch2/catch.hpp>

#include <random>

namespace baton {
namespace {

TEST_CASE("before requests have ended, all that max_tokens allows is expected") {
  OutputRecord record;
  for (int i = 0; i < OutputRecord::kFirst - 1; ++i) record.Add(10);
  CHECK(record.Left(0, 4096) == 4096);
  record.Add(10);
  CHECK(record.Left(0, 4096) < 13);
  CHECK(record.Left(0, 4096) >= 10);
  CHECK(record.Left(0, 7) == 7);
  CHECK(record.Left(5, 1) == 1);
}

TEST_CASE("three of four requests bring no more than is expected, at any time of theirs") {
  OutputRecord record;
  std::mt19937 random(1);
  std::lognormal_distribution<double> length(4.5, .8);  // half of them below 90
  const auto draw = [&] { return 1 + static_cast<int32_t>(length(random)); };
  for (int i = 0; i < 2000; ++i) record.Add(draw());
  for (const int32_t made : {0, 30, 100, 200}) {
    const int32_t expected = made + record.Left(made, 100'000);
    int as_far = 0, no_more = 0;
    for (int i = 0; i < 20'000; ++i) {
      const int32_t tokens = draw();
      as_far += tokens > made;
      no_more += tokens > made && tokens <= expected;
    }
    CAPTURE(made, expected);
    CHECK(static_cast<double>(no_more) / as_far == Approx(.75).margin(.12));
  }
}

TEST_CASE("who is longer than all others is expected to go on for as long again") {
  OutputRecord record;
  for (int i = 0; i < 100; ++i) record.Add(50);
  CHECK(record.Left(300, 4096) == 300);
  CHECK(record.Left(300, 40) == 40);
}

TEST_CASE("what requests did long ago is forgotten") {
  OutputRecord record;
  for (int i = 0; i < 1000; ++i) record.Add(1000);
  for (int i = 0; i < 600; ++i) record.Add(16);
  CHECK(record.Left(0, 4096) < 20);
}

}  // namespace
}  // namespace baton
