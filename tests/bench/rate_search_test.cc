// The search of the highest arrival rate, fed with results of made-up servers.
#include "bench/load/rate_search.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <vector>

namespace baton {
namespace {

// Probes until the search ends; returns the rates.
std::vector<double> Probe(RateSearch* search, const std::function<double(double)>& good_share) {
  std::vector<double> rates;
  while (const auto rate = search->Next()) {
    rates.push_back(*rate);
    search->Take(good_share(*rate));
  }
  return rates;
}

std::function<double(double)> GoodUpTo(double limit) {
  return [limit](double rate) { return rate <= limit ? 0.95 : 0.5; };
}

}  // namespace

TEST_CASE("the rate is found from below and from above, within the precision") {
  for (const double first : {0.1, 1.0, 6.9, 7.0, 40.0}) {
    RateSearch search({.first = first, .precision = 0.1, .max_probes = 20});
    const auto rates = Probe(&search, GoodUpTo(7));
    CHECK(search.found() <= 7);
    CHECK(search.found() >= 7 / 1.1);
    CHECK(search.is_bounded());
    CHECK(rates.front() == first);
    CHECK(rates.size() <= 12);
  }
}

TEST_CASE("the interval is halved by its logarithm once a good and a bad rate are known") {
  RateSearch search({.first = 1, .precision = 0.3});
  CHECK(Probe(&search, GoodUpTo(2.5)) ==
        std::vector<double>{1, 2, 4, std::sqrt(8.0), std::sqrt(2 * std::sqrt(8.0))});
  CHECK(search.found() == Approx(std::sqrt(2 * std::sqrt(8.0))));
}

TEST_CASE("exactly the wanted share is good") {
  RateSearch search({.first = 1, .wanted_good = 0.9, .max_probes = 1});
  search.Take(0.9);
  CHECK(search.found() == 1);
  CHECK_FALSE(search.Next().has_value());
}

TEST_CASE("a server that is always good or never ends the search, which says so") {
  RateSearch fast({.first = 1, .max_probes = 4});
  CHECK(Probe(&fast, GoodUpTo(1e9)) == std::vector<double>{1, 2, 4, 8});
  CHECK(fast.found() == 8);
  CHECK_FALSE(fast.is_bounded());
  RateSearch dead({.first = 1, .max_probes = 4});
  CHECK(Probe(&dead, GoodUpTo(0)) == std::vector<double>{1, 0.5, 0.25, 0.125});
  CHECK(dead.found() == 0);
  RateSearch bounded({.first = 1, .min_rate = 0.3});
  CHECK(Probe(&bounded, GoodUpTo(0)) == std::vector<double>{1, 0.5, 0.3});
  CHECK(bounded.found() == 0);
  RateSearch above({.first = 0.1, .min_rate = 0.3});
  CHECK(above.Next() == 0.3);
}

}  // namespace baton
