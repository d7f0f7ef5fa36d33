// Slices that ended attempts have left, with their pages and progress, for a later attempt at the
// same request. They go like cached pages: when somebody lacks pages, or after a while. So what is
// left makes nobody wait. Engine thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "prefill_worker/prompt.h"

namespace baton {

class SliceCache {
 public:
  // keep_time: how long slices stay after their attempt, beside the time that they had taken.
  explicit SliceCache(absl::Duration keep_time) : keep_time_(keep_time) {}

  // `ended`: a rank's prompt, no handoff of which reads or writes its pages any more.
  void Add(std::unique_ptr<Prompt> ended) { left_.push_back(std::move(ended)); }
  // Finds what an earlier attempt has left for this one; null: nothing. Valid until it is taken.
  Prompt* Find(const Prompt& next) const;
  // Takes out the first one left of those that `which` allows; null: there is none.
  std::unique_ptr<Prompt> TakeFirst(const std::function<bool(const Prompt&)>& which);

  const std::vector<std::unique_ptr<Prompt>>& left() const { return left_; }
  absl::Time Deadline(const Prompt& left) const;
  absl::Time NextDeadline() const;

 private:
  const absl::Duration keep_time_;
  std::vector<std::unique_ptr<Prompt>> left_;  // the oldest first
};

}  // namespace baton
