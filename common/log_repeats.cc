#include "common/log_repeats.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

std::string LogRepeats::LeftOut::Text() const {
  return absl::StrCat(n, " more within ", absl::FormatDuration(kPer), " like: ", last);
}

bool LogRepeats::Admit(const void* place, LogLevel level, std::string_view text, absl::Time now) {
  Site& site = sites_.try_emplace(place, Site{.until = now + kPer}).first->second;
  next_due_ = std::min(next_due_, site.until);
  if (site.n_written < kMaxLines) {
    ++site.n_written;
    return true;
  }
  site.left_out.level = level;
  ++site.left_out.n;
  site.left_out.last = text;
  return false;
}

std::vector<LogRepeats::LeftOut> LogRepeats::TakeDue(absl::Time now) {
  std::vector<LeftOut> due;
  if (now < next_due_) return due;
  next_due_ = absl::InfiniteFuture();
  absl::erase_if(sites_, [&](auto& entry) {
    Site& site = entry.second;
    if (now < site.until) {
      next_due_ = std::min(next_due_, site.until);
      return false;
    }
    if (site.left_out.n > 0) due.push_back(std::move(site.left_out));
    return true;
  });
  return due;
}

}  // namespace baton
