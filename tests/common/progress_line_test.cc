// The text of progress: share, amount, rate and the time that is left.
#include "common/progress_line.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "common/progress_bar.h"

namespace baton {
namespace {

using Catch::Matchers::Contains;

constexpr double kMib = 1048576;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST_CASE("a bar shows share, amount, rate of the last seconds and the time that is left") {
  ProgressLine line("pulling", ProgressUnit::kBytes, 1000 * kMib, At(0));
  line.Take(500 * kMib, At(0));  // was there before: no rate counts it
  CHECK(line.Plain() == "pulling: 50 %, 500.0/1000.0 MiB");
  line.Take(600 * kMib, At(10));
  CHECK(line.Plain() == "pulling: 60 %, 600.0/1000.0 MiB, 10.0 MiB/s, 40 s left");
  const std::string bar = line.Bar("a part", 200);
  CHECK(
      bar ==
      "pulling  [███████████████░░░░░░░░░]  60%  600.0/1000.0 MiB  10.0 MiB/s  40 s left  a part");
  CHECK(line.Bar("a part", 20) == "pulling  [██████████");  // cut between characters
}

TEST_CASE("the rate is that of the last seconds") {
  ProgressLine line("pulling", ProgressUnit::kBytes, 10000 * kMib, At(0));
  double done = 0;
  for (int i = 0; i <= 100; ++i) line.Take(done += 100 * kMib, At(i * 0.5));
  CHECK_THAT(line.Plain(), Contains("200.0 MiB/s"));
  ProgressLine slower("pulling", ProgressUnit::kBytes, 10000 * kMib, At(0));
  done = 0;
  for (int i = 0; i <= 20; ++i) slower.Take(done += 100 * kMib, At(i * 0.5));
  for (int i = 21; i <= 60; ++i) slower.Take(done += 10 * kMib, At(i * 0.5));
  CHECK_THAT(slower.Plain(), Contains("20.0 MiB/s"));
}

TEST_CASE("shares have no amount, parts have a number, and what is not known is left out") {
  ProgressLine share("loading", ProgressUnit::kShare, 1, At(0));
  CHECK(share.Plain() == "loading: 0 %");
  share.Take(0, At(0));
  share.Take(0.01, At(1));  // too little to tell the time
  CHECK(share.Plain() == "loading: 1 %");
  share.Take(0.25, At(10));
  CHECK(share.Plain() == "loading: 25 %, 30 s left");
  share.Take(1, At(40));
  CHECK(share.Plain() == "loading: 100 %");
  ProgressLine parts("tuning", ProgressUnit::kParts, 8, At(0));
  parts.Take(0, At(0));
  parts.Take(2, At(60));
  CHECK(parts.Plain() == "tuning: 25 %, 2/8, 3 min 0 s left");
  ProgressLine unknown("tuning", ProgressUnit::kParts, 0, At(0));
  unknown.Take(3, At(1));
  CHECK(unknown.fraction() == 0);
}

TEST_CASE("amounts and times have the unit that fits") {
  CHECK(BytesOf(1, 1000) == "1.0/1000.0 B");
  CHECK(BytesOf(512, 2048) == "0.5/2.0 KiB");
  CHECK(BytesOf(9.8 * 1024 * kMib, 15.6 * 1024 * kMib) == "9.8/15.6 GiB");
  CHECK(DurationLeft(0.2) == "1 s");
  CHECK(DurationLeft(99) == "99 s");
  CHECK(DurationLeft(200) == "3 min 20 s");
  CHECK(DurationLeft(7500) == "2 h 5 min");
}

// Returns what a bar writes into a file.
std::string Written(bool is_terminal, void (*use)(ProgressBar*)) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("loading", ProgressUnit::kShare, 1, file, is_terminal);
    use(&bar);
  }
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  CHECK(std::fread(text.data(), 1, text.size(), file) == text.size());
  std::fclose(file);
  return text;
}

TEST_CASE("a terminal gets a bar that goes, other outputs no line in the first seconds") {
  const auto use = [](ProgressBar* bar) {
    bar->Show(0.5);
    bar->Note("a line");
    bar->Show(1);
  };
  const std::string shown = Written(true, use);
  CHECK_THAT(shown, Contains(" 50%") && Contains("\r\x1b[Ka line\n") && Contains("100%"));
  CHECK(shown.substr(shown.size() - 4) == "\r\x1b[K");
  CHECK(Written(false, use) == "a line\n");
}

}  // namespace
}  // namespace baton
