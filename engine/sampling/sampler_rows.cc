// A kernel unit: see the rules in engine/CMakeLists.txt.
#include "engine/sampling/sampler_rows.h"

#include "engine/numerics/exp2.h"
#include "engine/numerics/fold.h"

namespace baton {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Max and Min give their second operand when the first is NaN.
template <class L>
L Sane(L x) {
  return Min(Max(x, Splat<L>(kMinusInfinity)), Splat<L>(__FLT_MAX__));
}

// Eight logits against a threshold; NaN is never a hit.
__m256 NotBelow(const float* logits, __m256 threshold) {
  const __m256 sane = _mm256_min_ps(_mm256_set1_ps(__FLT_MAX__), _mm256_loadu_ps(logits));
  return _mm256_cmp_ps(sane, threshold, _CMP_GE_OQ);
}

// The last n % 16 logits, padded with -inf: the padding wins no maximum and weighs nothing.
struct LastLogits {
  float values[kLanes];
  LastLogits(const float* from, int64_t n) {
    for (int64_t i = 0; i < kLanes; ++i) values[i] = i < n ? from[i] : kMinusInfinity;
  }
};

}  // namespace

TopLogit FindTopLogit(const float* logits, int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  Lanes top = Sane(Load<Lanes>(LastLogits(logits + whole, n - whole).values));
  for (int64_t i = 0; i < whole; i += kLanes) top = Max(top, Sane(Load<Lanes>(logits + i)));
  const float value = FoldMax(top);
  if (value == kMinusInfinity) return {value, 0};
  for (int64_t i = 0; i < n; ++i)
    if (Sane(logits[i]) == value) return {value, static_cast<int32_t>(i)};
  return {kMinusInfinity, 0};
}

void FindTopLogits(const float* logits, int64_t n, int64_t k, TopLogit* top) {
  if (k <= 0) return;
  int64_t listed = 0;
  // Equal logits that come later go behind.
  const auto insert = [&](float value, int64_t token) {
    int64_t at = listed < k ? listed++ : k - 1;
    for (; at > 0 && top[at - 1].value < value; --at) top[at] = top[at - 1];
    top[at] = {value, static_cast<int32_t>(token)};
  };
  int64_t i = 0;
  for (; i < k; ++i) insert(Sane(logits[i]), i);
  for (; i + 8 <= n; i += 8) {
    const __m256 sane = _mm256_min_ps(_mm256_set1_ps(__FLT_MAX__), _mm256_loadu_ps(logits + i));
    const __m256 last = _mm256_set1_ps(top[k - 1].value);
    unsigned hits =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(sane, last, _CMP_GT_OQ)));
    for (; hits != 0; hits &= hits - 1) {
      const int64_t token = i + __builtin_ctz(hits);
      if (Sane(logits[token]) > top[k - 1].value) insert(Sane(logits[token]), token);
    }
  }
  for (; i < n; ++i)
    if (Sane(logits[i]) > top[k - 1].value) insert(Sane(logits[i]), i);
}

int64_t CountBefore(const float* logits, int64_t n, float value, int64_t token) {
  value = Sane(value);
  const int64_t lower = token < n ? token : n;
  int64_t before = 0;
  for (int64_t i = 0; i < lower; ++i) before += Sane(logits[i]) >= value;
  for (int64_t i = lower; i < n; ++i) before += Sane(logits[i]) > value;
  return before;
}

double WeighLogits(const float* logits, int64_t n, float top, float c, float* weights,
                   double* block_sums) {
  const Lanes max = Splat<Lanes>(top), factor = Splat<Lanes>(c);
  const auto weigh = [&](const float* x) {
    return Exp2(Mul(Sub(Sane(Load<Lanes>(x)), max), factor));
  };
  double total = 0;
  for (int64_t begin = 0, block = 0; begin < n; begin += kWeightBlock, ++block) {
    const int64_t end = begin + kWeightBlock < n ? begin + kWeightBlock : n;
    Lanes sum = Splat<Lanes>(0.0f);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Lanes w = weigh(logits + i);
      if (weights != nullptr) Store(weights + i, w);
      sum = Add(sum, w);
    }
    if (i < end) {
      const LastLogits last(logits + i, end - i);
      float w[kLanes];
      Store(w, weigh(last.values));
      sum = Add(sum, Load<Lanes>(w));
      if (weights != nullptr)
        for (int64_t j = i; j < end; ++j) weights[j] = w[j - i];
    }
    const double block_sum = static_cast<double>(FoldSum(sum));
    if (block_sums != nullptr) block_sums[block] = block_sum;
    total += block_sum;
  }
  return total;
}

double DropWeightsBelow(float* weights, int64_t n, float min_weight, double* block_sums) {
  const __m256 limit = _mm256_set1_ps(min_weight);
  const auto keep = [&](float* w) {
    const auto not_below = [&](__m256 x) {
      return _mm256_and_ps(x, _mm256_cmp_ps(x, limit, _CMP_GE_OQ));
    };
    const LanesAvx2 kept{not_below(_mm256_loadu_ps(w)), not_below(_mm256_loadu_ps(w + 8))};
    _mm256_storeu_ps(w, kept.lo);
    _mm256_storeu_ps(w + 8, kept.hi);
    return kept;
  };
  double total = 0;
  for (int64_t begin = 0, block = 0; begin < n; begin += kWeightBlock, ++block) {
    const int64_t end = begin + kWeightBlock < n ? begin + kWeightBlock : n;
    LanesAvx2 sum = Splat<LanesAvx2>(0.0f);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) sum = Add(sum, keep(weights + i));
    if (i < end) {
      float w[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) w[j] = i + j < end ? weights[i + j] : 0.0f;
      sum = Add(sum, keep(w));
      for (int64_t j = i; j < end; ++j) weights[j] = w[j - i];
    }
    block_sums[block] = static_cast<double>(FoldSum(sum));
    total += block_sums[block];
  }
  return total;
}

SumAbove SumFrom(const float* logits, const float* weights, int64_t n, float threshold) {
  const __m256 limit = _mm256_set1_ps(threshold);
  int64_t count = 0;
  double mass = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    const int64_t end = begin + kWeightBlock < n ? begin + kWeightBlock : n;
    LanesAvx2 sum = Splat<LanesAvx2>(0.0f);
    __m256i hits = _mm256_setzero_si256();  // each -1
    int64_t i = begin;
    const auto add = [&](const float* x, const float* w) {
      const __m256 low = NotBelow(x, limit);
      const __m256 high = NotBelow(x + 8, limit);
      hits = _mm256_add_epi32(
          hits, _mm256_add_epi32(_mm256_castps_si256(low), _mm256_castps_si256(high)));
      sum = Add(sum, LanesAvx2{_mm256_and_ps(low, _mm256_loadu_ps(w)),
                               _mm256_and_ps(high, _mm256_loadu_ps(w + 8))});
    };
    for (; i + kLanes <= end; i += kLanes) add(logits + i, weights + i);
    if (i < end) {
      float x[kLanes], w[kLanes];
      for (int64_t j = 0; j < kLanes; ++j) {
        x[j] = i + j < end ? logits[i + j] : __builtin_nanf("");  // never a hit
        w[j] = i + j < end ? weights[i + j] : 0.0f;
      }
      add(x, w);
    }
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), hits);
    for (int32_t lane : lanes) count -= lane;
    mass += static_cast<double>(FoldSum(sum));
  }
  return {count, mass};
}

int64_t IndicesFrom(const float* logits, int64_t n, float threshold, int32_t* indices) {
  const __m256 limit = _mm256_set1_ps(threshold);
  int64_t found = 0, i = 0;
  for (; i + 8 <= n; i += 8) {
    unsigned hits = static_cast<unsigned>(_mm256_movemask_ps(NotBelow(logits + i, limit)));
    for (; hits != 0; hits &= hits - 1)
      indices[found++] = static_cast<int32_t>(i) + __builtin_ctz(hits);
  }
  for (; i < n; ++i)
    if (Min(__FLT_MAX__, logits[i]) >= threshold) indices[found++] = static_cast<int32_t>(i);
  return found;
}

}  // namespace baton
