#include "proto/join_refusals.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"

namespace baton {

void JoinRefusals::Add(JoinFault fault, const std::string& peer, const std::string& why) {
  if (on_refused_) on_refused_(fault);
  const auto index = static_cast<size_t>(fault);
  int unlogged = 0;
  {
    const absl::Time now = MonotonicNow();
    std::lock_guard lock(mutex_);
    Told& told = told_[index];
    if (now - told.at < kQuiet) {
      ++told.unlogged;
      return;
    }
    unlogged = std::exchange(told, {.at = now}).unlogged;
  }
  LogWarn("a worker%s may not join (%s): %s%s", peer.empty() ? "" : absl::StrCat(" at ", peer),
          kJoinFaultNames[index], why,
          unlogged == 0 ? "" : absl::StrCat("; ", unlogged, " more since the last such line"));
}

}  // namespace baton
