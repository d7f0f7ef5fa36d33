#include "engine/cpu/fp32/fp32_matrix.h"

namespace baton {

float Dot(const float* a, const float* b, int64_t n) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += a[i] * b[i];
  float sum = 0;
  for (const float value : lanes) sum += value;
  return sum;
}

}  // namespace baton
