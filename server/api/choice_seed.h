// The seeds of several choices for one prompt. Pure: any thread.
#pragma once

#include <cstdint>

namespace baton {

// Choice 0 draws as the request alone does, choice i as a request with this seed does: the i-th
// number of SplitMix64 from `seed` (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, OOPSLA 2014). Choices of one seed have different seeds, but for choice 0, which one
// of the others equals with a chance of 2^-64.
constexpr uint64_t ChoiceSeed(uint64_t seed, uint64_t choice) {
  if (choice == 0) return seed;
  uint64_t x = seed + choice * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace baton
