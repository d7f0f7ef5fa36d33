// Parameters of a request for the choice of its tokens. Plain values: the same struct in the
// router, on the wire (proto converts it), in both workers and in the sampler.
#pragma once

#include <cstdint>

namespace baton {

struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy (argmax, ties to the lowest token id)
  int32_t top_k = 0;         // <= 0 = off
  float top_p = 1.0f;        // (0, 1]; 1 = off
  uint64_t seed = 0;         // always set by the router: a request without a seed gets one there
  bool operator==(const SamplingParams&) const = default;
};

}  // namespace baton
