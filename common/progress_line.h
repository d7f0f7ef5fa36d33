// The text of a progress bar or line: share, amount, rate and remaining time, of times that the
// caller tells. Pure, no I/O. One thread.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace baton {

// Counted things: a share of 1, bytes, or parts that are done.
enum class ProgressUnit { kShare, kBytes, kParts };

class ProgressLine {
 public:
  // what: the activity, as "loading the model". total > 0, or 0 while it is not known.
  ProgressLine(std::string what, ProgressUnit unit, double total, absl::Time start);

  void SetTotal(double total) { total_ = total; }
  double total() const { return total_; }
  // done: so far, of total. The first call's value is what was there before, which no rate counts.
  void Take(double done, absl::Time now);
  double fraction() const;  // 0 to 1
  // "pulling  [███░░░]  63%  9.8/15.6 GiB  1.9 GiB/s  3 s left  part", at most `width` columns.
  std::string Bar(std::string_view part, int width) const;
  // "pulling: 63 %, 9.8/15.6 GiB, 1.9 GiB/s, 3 s left"
  std::string Plain() const;

 private:
  struct Sample {
    absl::Time at;
    double done = 0;
  };
  double Rate() const;       // per second, of the last seconds; 0: not known yet
  std::string Left() const;  // "3 s left"; empty: not known
  std::string Amount() const;
  std::string RateText() const;

  const std::string what_;
  const ProgressUnit unit_;
  double total_ = 0;
  double done_ = 0;
  absl::Time now_;
  std::deque<Sample> samples_;  // oldest first, kWindow of them at most
};

// "9.8/15.6 GiB"; both in the unit of the larger.
std::string BytesOf(double done, double total);
std::string DurationLeft(double seconds);  // "45 s", "3 min 20 s", "2 h 5 min"

}  // namespace baton
