// Limits of keys, by a clock that the test moves.
#include "server/access/token_bucket.h"

#include <catch2/catch.hpp>

#include "server/access/key_holder.h"

namespace baton {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

TEST_CASE("a full bucket gives its capacity at once, then as much as flows in") {
  TokenBucket bucket(2, 4);
  for (int i = 0; i < 4; ++i) {
    CHECK(bucket.WaitFor(1, kStart) == absl::ZeroDuration());
    bucket.Take(1, kStart);
  }
  CHECK(bucket.WaitFor(1, kStart) == absl::Milliseconds(500));
  CHECK(bucket.WaitFor(1, kStart + absl::Milliseconds(200)) == absl::Milliseconds(300));
  CHECK(bucket.WaitFor(1, kStart + absl::Milliseconds(500)) == absl::ZeroDuration());
  // A bucket never holds more than its capacity.
  const absl::Time later = kStart + absl::Hours(1);
  CHECK(bucket.WaitFor(4, later) == absl::ZeroDuration());
  bucket.Take(4, later);
  CHECK(bucket.WaitFor(1, later) == absl::Milliseconds(500));
}

TEST_CASE("the predicted wait is right: nothing fits before it, and it fits after it") {
  TokenBucket bucket(100.0 / 60, 100);
  bucket.Take(170, kStart);  // 70 owed
  for (const double amount : {1.0, 30.0, 100.0}) {
    const absl::Duration wait = bucket.WaitFor(amount, kStart);
    CHECK(absl::ToDoubleSeconds(wait) == Approx((70 + amount) * 0.6));
    TokenBucket early = bucket, in_time = bucket;
    CHECK(early.WaitFor(amount, kStart + wait * 0.99) > absl::ZeroDuration());
    CHECK(in_time.WaitFor(amount, kStart + wait + absl::Microseconds(1)) == absl::ZeroDuration());
  }
}

TEST_CASE("more than the capacity fits into a full bucket, which then owes the rest") {
  TokenBucket bucket(1, 10);
  CHECK(bucket.WaitFor(25, kStart) == absl::ZeroDuration());
  bucket.Take(25, kStart);
  CHECK(bucket.WaitFor(1, kStart) == absl::Seconds(16));
  CHECK(bucket.WaitFor(25, kStart + absl::Seconds(24)) == absl::Seconds(1));
  CHECK(bucket.WaitFor(25, kStart + absl::Seconds(25)) == absl::ZeroDuration());
}

TEST_CASE("no limit is no wait, and a clock that stands still brings nothing") {
  TokenBucket open(0, 0);
  open.Take(1e9, kStart);
  CHECK(open.WaitFor(1e9, kStart) == absl::ZeroDuration());
  TokenBucket bucket(10, 1);
  bucket.Take(1, kStart);
  for (int i = 0; i < 3; ++i) CHECK(bucket.WaitFor(1, kStart) == absl::Milliseconds(100));
}

TEST_CASE("other limits forget nothing that was used") {
  TokenBucket bucket(1, 10);
  bucket.Take(8, kStart);
  bucket.SetLimit(2, 20, kStart);
  CHECK(bucket.WaitFor(12, kStart) == absl::ZeroDuration());
  CHECK(bucket.WaitFor(14, kStart) == absl::Seconds(1));
  bucket.SetLimit(2, 4, kStart);  // owes four
  CHECK(bucket.WaitFor(1, kStart) == absl::Milliseconds(2500));
}

TEST_CASE("a key's requests and tokens are counted apart") {
  const KeyEntry entry = {.name = "a",
                          .tenant = "t",
                          .scopes = SetOf(Scope::kInference),
                          .requests_per_second = 2,
                          .tokens_per_minute = 60};
  const KeyHolder holder{"a", "t", entry.scopes, std::make_shared<KeyAccount>(entry)};
  CHECK(holder.TakeRequest(kStart) == absl::ZeroDuration());
  CHECK(holder.TakeRequest(kStart) == absl::ZeroDuration());
  CHECK(holder.TakeRequest(kStart) == absl::Milliseconds(500));
  // A request that is refused is not counted.
  CHECK(holder.TakeRequest(kStart) == absl::Milliseconds(500));
  CHECK(holder.WaitForTokens(50, kStart) == absl::ZeroDuration());
  holder.TakeTokens(50, kStart);
  CHECK(holder.WaitForTokens(50, kStart) == absl::Seconds(40));
  holder.TakeTokens(20, kStart);  // generated
  CHECK(holder.WaitForTokens(50, kStart) == absl::Seconds(60));
}

}  // namespace
}  // namespace baton
