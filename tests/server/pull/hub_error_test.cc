// Which failed fetches are tried again, and what a file system's errors ask for.
#include "server/pull/hub_error.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

#include "server/pull/hub_repo.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

FetchEnd Answer(int status) {
  FetchEnd end;
  end.http_status = status;
  return end;
}

FetchEnd Broken(bool may_pass) {
  FetchEnd end;
  end.failure = "broken";
  end.may_pass = may_pass;
  return end;
}

TEST_CASE("a fetch is tried again after growing waits, and from the beginning after a new byte") {
  FetchRetry retry;
  std::vector<double> waits;
  while (const auto wait = retry.WaitAfter(Broken(true), false)) {
    REQUIRE(waits.size() < 10);
    waits.push_back(absl::ToDoubleSeconds(*wait));
  }
  CHECK(waits == std::vector<double>{1, 2, 4});
  FetchRetry lucky;
  for (int i = 0; i < 20; ++i) {
    const auto wait = lucky.WaitAfter(Broken(true), true);
    REQUIRE(wait.has_value());
    CHECK(*wait == absl::Seconds(1));
  }
}

TEST_CASE("only what may pass is tried again, and a hub says when, within a minute") {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    INFO(status);
    CHECK(FetchRetry().WaitAfter(Answer(status), false).has_value());
  }
  for (const int status : {0, 301, 400, 401, 403, 404, 410, 416}) {
    INFO(status);
    CHECK_FALSE(FetchRetry().WaitAfter(Answer(status), false).has_value());
  }
  CHECK_FALSE(FetchRetry().WaitAfter(Broken(false), false).has_value());
  FetchEnd full = Broken(true);
  full.sink = absl::ResourceExhaustedError("full");
  CHECK_FALSE(FetchRetry().WaitAfter(full, true).has_value());
  FetchEnd busy = Answer(429);
  busy.retry_after = absl::Seconds(7);
  CHECK(FetchRetry().WaitAfter(busy, false) == absl::Seconds(7));
  busy.retry_after = absl::Hours(7);
  CHECK(FetchRetry().WaitAfter(busy, false) == absl::Minutes(1));
}

TEST_CASE("a refused file says what to change") {
  const absl::Status full = FileError("/cache/blobs/a", "cannot be written", ENOSPC);
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(full.message()),
             Contains("/cache/blobs/a") && Contains("make room") && Contains("--hf-cache"));
  const absl::Status denied = FileError("/cache", "cannot be made", EROFS);
  CHECK(denied.code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(denied.message()), Contains("may write with --hf-cache"));
}

}  // namespace
}  // namespace baton
