#include "engine/cpu/fp32/fp32_matrix.h"

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

void Add(const Matrix& y, Matrix& x) {
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] += y.data[i];
}

void NormRow(const float* x, const std::vector<float>& weight, float eps, float* out) {
  const size_t n = weight.size();
  const float mean = Dot(x, x, static_cast<int64_t>(n)) / static_cast<float>(n);
  const float scale = 1 / std::sqrt(mean + eps);
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void Centre(float* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  const float mean = static_cast<float>(sum / static_cast<double>(n));
  for (size_t i = 0; i < n; ++i) x[i] -= mean;
}

float SoftCap(float x, double cap) {
  return cap == 0 ? x : static_cast<float>(cap) * std::tanh(x / static_cast<float>(cap));
}

}  // namespace baton
