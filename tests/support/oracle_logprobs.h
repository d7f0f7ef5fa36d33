// Log-probabilities of the reference's logits (oracle_case.h), and how far others may be from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace baton {

inline double LogprobOf(const float* logits, size_t vocab, int32_t token) {
  const double top = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (size_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]} - top);
  return double{logits[token]} - top - std::log(sum);
}

// A logprob differs by no more than its logit and the greatest difference of all logits do; each is
// at most the relative error of the row times its norm. Beside that, rounding to fp32.
inline double LogprobBound(const float* logits, size_t vocab, double relative) {
  double squares = 0;
  for (size_t i = 0; i < vocab; ++i) squares += double{logits[i]} * double{logits[i]};
  return 2 * relative * std::sqrt(squares) + 1e-5;
}

}  // namespace baton
