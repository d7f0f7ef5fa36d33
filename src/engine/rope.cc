#include "engine/rope.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr double kTurn = 2 * 3.14159265358979323846;

// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, a linear blend between.
double Llama3Kept(const RopeDesc& rope, double frequency) {
  const double turns = rope.original_max_position_embeddings * frequency / kTurn;
  return std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor),
                    0.0, 1.0);
}

// YaRN (arXiv 2309.00071): the same with a blend that is linear in the number of the pair.
class YarnRange {
 public:
  YarnRange(const RopeDesc& rope, int head_dim) {
    const auto pair_of = [&](double turns) {
      return head_dim * std::log(rope.original_max_position_embeddings / (turns * kTurn)) /
             (2 * std::log(rope.theta));
    };
    const double fast = pair_of(rope.beta_fast), slow = pair_of(rope.beta_slow);
    low_ = std::max(rope.truncate ? std::floor(fast) : fast, 0.0);
    high_ = std::min(rope.truncate ? std::ceil(slow) : slow, head_dim - 1.0);
    if (low_ == high_) high_ += 0.001;  // as transformers avoids 0 / 0
  }
  double Kept(int pair) const { return 1 - std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  double low_, high_;
};

// Dynamic NTK scaling: theta as of a sequence of the served length.
double DynamicTheta(const RopeDesc& rope, int head_dim) {
  const double original = rope.original_max_position_embeddings;
  const double length = std::max(rope.served_positions, original);
  return rope.theta *
         std::pow(rope.factor * length / original - (rope.factor - 1), head_dim / (head_dim - 2.0));
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeDesc& rope, int head_dim) {
  using Scaling = RopeDesc::Scaling;
  const double theta =
      rope.scaling == Scaling::kDynamic ? DynamicTheta(rope, head_dim) : rope.theta;
  const YarnRange yarn(rope, head_dim);
  std::vector<double> frequencies(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) {
    const double plain = 1.0 / std::pow(theta, 2.0 * i / head_dim);
    double kept = 1;  // the share of the plain frequency; the rest is stretched
    if (rope.scaling == Scaling::kLinear) kept = 0;
    if (rope.scaling == Scaling::kLlama3) kept = Llama3Kept(rope, plain);
    if (rope.scaling == Scaling::kYarn) kept = yarn.Kept(i);
    frequencies[i] = (1 - kept) * plain / rope.factor + kept * plain;
  }
  return frequencies;
}

double YarnScale(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

double YarnAttentionFactor(double factor, double mscale, double mscale_all_dim) {
  return mscale != 0 && mscale_all_dim != 0
             ? YarnScale(factor, mscale) / YarnScale(factor, mscale_all_dim)
             : YarnScale(factor, 1);
}

RopeTable RopeTable::For(const RopeDesc& rope, int head_dim, int n_positions) {
  const std::vector<double> frequencies = RopeFrequencies(rope, head_dim);
  RopeTable table;
  const size_t size = frequencies.size() * n_positions;
  table.cos.reserve(size);
  table.sin.reserve(size);
  for (int position = 0; position < n_positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = position * frequency;
      table.cos.push_back(static_cast<float>(rope.attention_factor * std::cos(angle)));
      table.sin.push_back(static_cast<float>(rope.attention_factor * std::sin(angle)));
    }
  }
  return table;
}

}  // namespace baton
