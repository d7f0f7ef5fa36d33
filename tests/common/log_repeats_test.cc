#include "common/log_repeats.h"

#include <string>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr absl::Duration kSecond = absl::Seconds(1);

struct Repeats {
  // Lines of a place, written or not; returns how many were written.
  int Write(const int& place, int n, LogLevel level = LogLevel::kWarn) {
    int written = 0;
    for (int i = 0; i < n; ++i)
      written += repeats.Admit(&place, level, absl::StrCat("line ", ++said), now);
    return written;
  }
  LogRepeats repeats;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  int said = 0;
};

}  // namespace

TEST_CASE("of a place that repeats itself some lines are written, and one tells of the others") {
  Repeats r;
  const int place = 0;
  CHECK(r.Write(place, 77) == LogRepeats::kMaxLines);
  r.now += LogRepeats::kPer - kSecond;
  CHECK(r.repeats.TakeDue(r.now).empty());
  CHECK(r.Write(place, 1) == 0);
  r.now += kSecond;
  const auto due = r.repeats.TakeDue(r.now);
  REQUIRE(due.size() == 1);
  CHECK(due[0].n == 58);
  CHECK(due[0].level == LogLevel::kWarn);
  CHECK(due[0].Text() == "58 more within 10s like: line 78");
  CHECK(r.repeats.TakeDue(r.now + absl::Hours(1)).empty());  // told once
  CHECK(r.Write(place, 3) == 3);                             // counted anew
}

TEST_CASE("places are counted for themselves, and those that say little are never told of") {
  Repeats r;
  const int loud = 0, quiet = 0;
  CHECK(r.Write(loud, 30, LogLevel::kError) == LogRepeats::kMaxLines);
  r.now += 4 * kSecond;
  CHECK(r.Write(quiet, LogRepeats::kMaxLines) == LogRepeats::kMaxLines);
  r.now += 6 * kSecond;
  const auto due = r.repeats.TakeDue(r.now);
  REQUIRE(due.size() == 1);
  CHECK(due[0].level == LogLevel::kError);
  CHECK(due[0].n == 10);
  CHECK(r.Write(quiet, 1) == 0);  // its own 10 s are not over
  r.now += 4 * kSecond;
  CHECK(r.repeats.TakeDue(r.now).size() == 1);
}

TEST_CASE("at the end all that was left out is told, whenever it was") {
  Repeats r;
  const int a = 0, b = 0;
  r.Write(a, 21);
  r.now += kSecond;
  r.Write(b, 22);
  CHECK(r.repeats.TakeDue(absl::InfiniteFuture()).size() == 2);
}

}  // namespace baton
