// The one source of chance of a simulated run: xoshiro256** (Blackman and Vigna) seeded by
// splitmix64, with its own distributions, because those of the standard library differ between
// libraries. Integers only.
#pragma once

#include <bit>
#include <cstdint>

namespace baton::sim {

class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }
  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  uint64_t Below(uint64_t n) { return Next() % n; }
  int64_t Between(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(Below(static_cast<uint64_t>(max - min) + 1));
  }
  bool Percent(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  // Draws over magnitudes: each power of two between the bounds is about equally likely.
  int64_t Magnitude(int64_t min, int64_t max) {
    const auto min_bits = std::bit_width(static_cast<uint64_t>(min));
    const auto max_bits = std::bit_width(static_cast<uint64_t>(max));
    const auto bits = static_cast<int>(Between(min_bits, max_bits));
    const int64_t low = bits == 0 ? 0 : int64_t{1} << (bits - 1);
    const int64_t value = low + static_cast<int64_t>(Below(static_cast<uint64_t>(low) + 1));
    return value < min ? min : value > max ? max : value;
  }

 private:
  uint64_t state_[4];
};

}  // namespace baton::sim
