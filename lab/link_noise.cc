#include "lab/link_noise.h"

#include <random>

namespace baton {

double LinkNoise::Longer(int worker, double time) const {
  if (!is_set()) return 1;
  // A generator per period, so that what is slow at a time does not depend on who asks when.
  std::minstd_rand random(
      static_cast<uint32_t>(seed * 7919 + 1 + static_cast<uint64_t>(time / period) * 104729));
  random.discard(3);
  const int first = static_cast<int>(random() % static_cast<unsigned>(workers - 1));
  return worker == first || worker == first + 1 ? factor : 1;
}

double LinkNoise::Through(int worker, double time, double seconds) const {
  if (!is_set()) return time + seconds;
  for (uint64_t turn = static_cast<uint64_t>(time / period);; ++turn) {
    // In the middle of the period: its ends are rounded.
    const double longer = Longer(worker, (static_cast<double>(turn) + 0.5) * period);
    const double end = static_cast<double>(turn + 1) * period;
    if (time + seconds * longer <= end) return time + seconds * longer;
    if (end <= time) continue;
    seconds -= (end - time) / longer;
    time = end;
  }
}

}  // namespace baton
