// Natural logarithm without libm (docs/NUMERICS.md N7), so that log-probabilities are the same on
// every machine. Pure function, any thread.
#pragma once

#include <cstdint>

namespace baton {

// Natural logarithm of a positive, normal x; relative error of the mantissa's part below 1e-14. x =
// m 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh((m - 1) / (m + 1)) by its series.
inline double NaturalLog(double x) {
  constexpr double kSqrt2 = 1.4142135623730951, kLn2 = 0.6931471805599453;
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m >= kSqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double series = 1.0 / 17;
  for (int k = 15; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return 2.0 * s * series + exponent * kLn2;
}

}  // namespace baton
