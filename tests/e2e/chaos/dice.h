// Random choices of the chaos rig: the same on every machine and library for the same seed.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"
#include "common/unit_interval.h"

namespace baton {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}

  int64_t Between(int64_t min, int64_t max) {  // both bounds included
    return min + static_cast<int64_t>(engine_() % static_cast<uint64_t>(max - min + 1));
  }
  double Share() { return InUnitInterval(engine_()); }  // [0, 1)
  bool Chance(double p) { return Share() < p; }
  absl::Duration Time(absl::Duration min, absl::Duration max) {
    return min + Share() * (max - min);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace baton
