// Counts lines that one place in the code repeats: the first kMaxLines within kPer are written, of
// the others one line tells afterwards, with the last of them. A plain object; the log's mutex
// guards it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/log.h"

namespace baton {

class LogRepeats {
 public:
  static constexpr int kMaxLines = 20;
  static constexpr absl::Duration kPer = absl::Seconds(10);

  // Lines of one place that were not written.
  struct LeftOut {
    LogLevel level = LogLevel::kWarn;
    int n = 0;
    std::string last{};  // of them

    std::string Text() const;  // "57 more within 10s like: ..."
  };

  // True: the line is to be written. site: the place, by an address. now: never falls.
  bool Admit(const void* site, LogLevel level, std::string_view text, absl::Time now);
  // Returns what was left out in times that are over; each is told once.
  std::vector<LeftOut> TakeDue(absl::Time now);

 private:
  struct Site {
    absl::Time until;  // its lines are counted from the first one on for kPer
    int n_written = 0;
    LeftOut left_out{};
  };
  absl::flat_hash_map<const void*, Site> sites_;  // that were heard of within kPer
  absl::Time next_due_ = absl::InfiniteFuture();
};

}  // namespace baton
