// Inputs of the checks: the same bits on the host and on a GPU, by integer arithmetic and one
// multiplication in fp32. Value i of matrix `id` from `seed`. Pure functions, any thread.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BATON_BOTH_SIDES __host__ __device__
#else
#define BATON_BOTH_SIDES
#endif

namespace baton {

enum class Distribution : int {
  kNormal,   // close to N(0, 1): the sum of four bytes
  kWide,     // any sign and significand, exponents from -20 to 20
  kOutlier,  // as kNormal, but one value of each row is 1024 times as large
  kWeight,   // as kNormal, but 64 times as small, as the weights of models are: for times
};
inline constexpr int kDistributions = 3;  // that are compared

inline const char* NameOf(Distribution distribution) {
  constexpr const char* kNames[] = {"normal", "wide", "outlier", "weight"};
  return kNames[static_cast<int>(distribution)];
}

// The finalizer of MurmurHash3 (Austin Appleby, public domain).
BATON_BOTH_SIDES inline uint32_t Mix(uint32_t h) {
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

// Returns the bf16 of a finite fp32, rounded to nearest even.
BATON_BOTH_SIDES inline uint16_t RoundToBf16(float value) {
  union {
    float value;
    uint32_t bits;
  } both = {value};
  return static_cast<uint16_t>((both.bits + 0x7fffu + (both.bits >> 16 & 1u)) >> 16);
}

// Returns a bf16 of a matrix with rows of k values.
BATON_BOTH_SIDES inline uint16_t InputAt(Distribution distribution, uint32_t seed, uint32_t id,
                                         int64_t row, int64_t column, int64_t k) {
  const uint32_t index = static_cast<uint32_t>(row * k + column);
  const uint32_t hash = Mix(index * 0x9E3779B1u + id * 0x85EBCA77u + seed);
  if (distribution == Distribution::kWide) {
    const uint32_t exponent = 127 - 20 + hash % 41;
    return static_cast<uint16_t>((hash >> 16 & 0x8000u) | exponent << 7 | (hash >> 8 & 0x7fu));
  }
  const int sum =
      static_cast<int>((hash & 0xff) + (hash >> 8 & 0xff) + (hash >> 16 & 0xff) + (hash >> 24)) -
      510;
  const float normal = static_cast<float>(sum) * (1.0f / 147.8f);
  if (distribution == Distribution::kWeight) return RoundToBf16(normal * (1.0f / 64));
  const uint16_t value = RoundToBf16(normal);
  if (distribution == Distribution::kNormal || value == 0) return value;
  const uint32_t outlier = Mix(static_cast<uint32_t>(row) * 0xC2B2AE3Du + id + seed);
  if (outlier % static_cast<uint32_t>(k) != static_cast<uint32_t>(column)) return value;
  return static_cast<uint16_t>(value + (10 << 7));  // times 2^10
}

}  // namespace baton
