#include "server/api/own_gaps.h"

#include <random>
#include <vector>

#include "bench/load/load_client.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("a request's own gaps are judged as baton bench load judges them") {
  std::mt19937_64 random(7);
  int n_met = 0, n_missed = 0;
  for (int round = 0; round < 20'000; ++round) {
    const absl::Duration limit = absl::Milliseconds(50);
    const size_t n = random() % (round % 2 == 0 ? 5 : 400);
    const double share_above = static_cast<double>(random() % 4) / 100;
    OwnGaps own;
    std::vector<double> gaps;
    for (size_t i = 0; i < n; ++i) {
      const bool is_above = static_cast<double>(random() % 1000) < 1000 * share_above;
      const double ms = is_above ? 50.5 + static_cast<double>(random() % 100)
                                 : static_cast<double>(random() % 101) / 2;
      gaps.push_back(ms);
      own.Add(absl::Milliseconds(ms), limit);
    }
    const bool is_good = Distribution(gaps).percentile(99) <= 50;
    REQUIRE(own.Meets(limit) == is_good);
    ++(is_good ? n_met : n_missed);
  }
  CHECK(n_met > 1000);
  CHECK(n_missed > 1000);
}

}  // namespace
}  // namespace baton
