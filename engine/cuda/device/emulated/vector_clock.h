// A vector clock (Fidge 1988, Mattern 1989): for each timeline, a stream or a host thread, how many
// of its events come before. Plain value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace baton {

class VectorClock {
 public:
  uint64_t of(int timeline) const {
    const auto i = static_cast<size_t>(timeline);
    return i < ticks_.size() ? ticks_[i] : 0;
  }
  void Tick(int timeline) {
    Grow(static_cast<size_t>(timeline) + 1);
    ++ticks_[static_cast<size_t>(timeline)];
  }
  // Adds everything that comes before the other clock.
  void Join(const VectorClock& other) {
    Grow(other.ticks_.size());
    for (size_t i = 0; i < other.ticks_.size(); ++i)
      ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }

 private:
  void Grow(size_t n) {
    if (ticks_.size() < n) ticks_.resize(n);
  }

  std::vector<uint64_t> ticks_;
};

}  // namespace baton
