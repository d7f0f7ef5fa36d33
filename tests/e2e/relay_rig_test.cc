// The processes of `baton bench relay MODEL`: every scheme of prefill on two and three ranks gives
// the bits of one worker, and every link carries the bytes of its formula, on a wide link and on a
// narrow one, with parts that are no whole pages.

#include "bench/relay_measurement.h"

#include <catch2/catch.hpp>
#include <set>

namespace baton {
namespace {

RelayMeasurementOptions Tiny(int ranks) {
  RelayMeasurementOptions options;
  options.rig.program = BATON_BINARY;
  options.rig.engine.model =
      std::string("random:") + BATON_SOURCE_DIR + "/configs/shapes/tiny.json";
  options.rig.engine.page_tokens = 16;
  options.rig.engine.max_step_tokens = 100;
  options.rig.ranks = ranks;
  options.tokens = 1536;
  options.rounds = 1;
  return options;
}

TEST_CASE("every scheme has the bits of one worker and the bytes of its formula") {
  for (const int ranks : {2, 3}) {
    RelayMeasurementOptions options = Tiny(ranks);
    options.links = {0, 20e6};
    const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
    INFO(measured.status());
    REQUIRE(measured.ok());
    int exact = 0;
    for (const RelayClaim& claim : measured->claims) {
      CHECK(claim.source == "measured");
      INFO(claim.what << " " << claim.value);
      if (claim.id != "R9" && claim.id != "R14" && claim.id != "R13") continue;
      CHECK(claim.holds());
      ++exact;
    }
    CHECK(exact == 6);
    std::set<std::string> schemes;
    for (const RelayResult& result : measured->results) {
      CHECK(result.seconds > 0);
      schemes.insert(result.scheme);
    }
    CHECK(schemes.size() == options.schemes.size());
  }
}

TEST_CASE("a narrow link is felt, and the closed form leaves the prompt to the last rank") {
  RelayMeasurementOptions options = Tiny(2);
  options.schemes = {"one", "kvr-e", "streaming"};
  options.links = {500e3};
  const absl::StatusOr<RelayMeasured> measured = MeasureRelay(options);
  INFO(measured.status());
  REQUIRE(measured.ok());
  double even = 0, relay = 0, even_bytes = 0;
  for (const RelayResult& result : measured->results) {
    if (result.source != "measured") continue;
    if (result.scheme == "kvr-e") even = result.seconds;
    if (result.scheme == "kvr-e") even_bytes = result.slices[0];
    if (result.scheme == "streaming") relay = result.seconds;
  }
  CHECK(even_bytes == 768);
  CHECK(even > 0.15);  // its first slice is some 100 kB
  CHECK(relay < even / 2);
}

TEST_CASE("what cannot be measured is refused") {
  RelayMeasurementOptions options = Tiny(2);
  options.tokens = 1000;
  CHECK(MeasureRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = Tiny(2);
  options.schemes = {"kvr"};
  CHECK(MeasureRelay(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = Tiny(2);
  options.rig.engine.model = "random:/nowhere.json";
  CHECK(!MeasureRelay(options).ok());
}

}  // namespace
}  // namespace baton
