// Work that comes per second, of prompts that are shorter than one.
#include "router/arrival_record.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1);

TEST_CASE("shorter prompts of the last seconds count, longer and older ones do not") {
  ArrivalRecord record;
  CHECK(record.Shorter(1000, kNow).tokens == 0);
  for (int i = 0; i < 2000; ++i) {  // 100 s, 20 prompts a second
    const absl::Time at = kNow + i * absl::Milliseconds(50);
    record.Add(PrefillWork::Of(10, 90), at);
    record.Add(PrefillWork::Of(500, 0), at);
  }
  const absl::Time end = kNow + absl::Seconds(100);
  CHECK(record.Shorter(256, end).tokens == Approx(200).epsilon(.01));
  CHECK(record.Shorter(256, end).pairs == Approx(20 * CausalPairs(10, 90)).epsilon(.01));
  CHECK(record.Shorter(5000, end).tokens == Approx(200 + 10'000).epsilon(.01));
  CHECK(record.Shorter(500, end).tokens == Approx(200).epsilon(.01));  // none of its own length
  CHECK(record.Shorter(10, end).tokens == 0);
  CHECK(record.Shorter(256, end + absl::Minutes(5)).tokens < 1e-3);
}

}  // namespace
}  // namespace baton
