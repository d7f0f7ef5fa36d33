// A kernel unit: see the rules in src/engine/CMakeLists.txt.
#include "engine/sampler_rows.h"

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

// The last n % 16 logits with -inf behind them: they win no maximum and weigh nothing.
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

}  // namespace baton
