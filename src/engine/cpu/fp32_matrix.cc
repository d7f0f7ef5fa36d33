#include "engine/cpu/fp32_matrix.h"

#include <cmath>

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

void WeighExperts(const ExpertsDesc& experts, float* logits) {
  std::vector<float> powers(logits, logits + experts.n);
  const float greatest = *std::max_element(powers.begin(), powers.end());
  for (float& power : powers) power = std::exp(power - greatest);
  std::vector<bool> chosen(experts.n);
  for (int i = 0; i < experts.per_token; ++i) {
    int best = -1;  // of equal ones the first
    for (int e = 0; e < experts.n; ++e) {
      if (!chosen[e] && (best < 0 || logits[e] > logits[best])) best = e;
    }
    chosen[best] = true;
  }
  float sum = 0;
  for (int e = 0; e < experts.n; ++e) {
    if (chosen[e] || !experts.normalised) sum += powers[e];
  }
  const float scale = static_cast<float>(experts.scale);
  for (int e = 0; e < experts.n; ++e) logits[e] = chosen[e] ? powers[e] / sum * scale : 0;
}

}  // namespace baton
