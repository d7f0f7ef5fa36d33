#include "prefill_worker/slice_cache.h"

#include <algorithm>
#include <utility>

namespace baton {

Prompt* SliceCache::Find(const Prompt& next) const {
  for (const auto& left : left_)
    if (HasSlicesOf(next, *left)) return left.get();
  return nullptr;
}

std::unique_ptr<Prompt> SliceCache::TakeFirst(const std::function<bool(const Prompt&)>& which) {
  const auto it =
      std::find_if(left_.begin(), left_.end(), [&](const auto& left) { return which(*left); });
  if (it == left_.end()) return nullptr;
  std::unique_ptr<Prompt> taken = std::move(*it);
  left_.erase(it);
  return taken;
}

absl::Time SliceCache::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& left : left_) next = std::min(next, Deadline(*left));
  return next;
}

absl::Time SliceCache::Deadline(const Prompt& left) const {
  const absl::Duration took =
      left.slices.front().run ? left.progress - left.first_step : absl::ZeroDuration();
  return left.progress + took + keep_time_;
}

}  // namespace baton
