#include "server/api/latency_windows.h"

#include <algorithm>
#include <bit>

namespace baton {

// Below 8 us each microsecond is a size of its own; from there on an octave has eight.
size_t LatencyWindows::SizeOf(uint64_t us) {
  if (us < kEighths) return us;
  const int octave = static_cast<int>(std::bit_width(us)) - 1;
  if (octave >= kMaxOctave) return kSizes - 1;
  return static_cast<size_t>(octave - 2) * kEighths + ((us >> (octave - 3)) & (kEighths - 1));
}

int64_t LatencyWindows::FloorOf(size_t size) {
  if (size < kEighths) return static_cast<int64_t>(size);
  const size_t octave = size / kEighths + 2;
  return static_cast<int64_t>((kEighths + size % kEighths) << (octave - 3));
}

void LatencyWindows::Add(absl::Duration latency, absl::Time now) {
  const int64_t number = SecondOf(now);
  Second& second = seconds_[static_cast<size_t>(number % kSeconds)];
  if (second.second != number) {
    second.second = number;
    second.counts.fill(0);
  }
  ++second.counts[SizeOf(
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(latency))))];
}

}  // namespace baton
