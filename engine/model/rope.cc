#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr double kTurn = 2 * 3.14159265358979323846;

// Llama 3.1: long wavelengths are stretched by `factor`, short ones are kept, with a linear blend
// between.
double Llama3Kept(const RopeDesc& rope, double frequency) {
  const double turns = rope.original_max_position_embeddings * frequency / kTurn;
  return std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor),
                    0.0, 1.0);
}

// YaRN (arXiv 2309.00071): like Llama 3.1, with a blend that is linear in the index of the pair.
class YarnRange {
 public:
  YarnRange(const RopeDesc& rope, int rotary_dim) {
    const auto pair_of = [&](double turns) {
      return rotary_dim * std::log(rope.original_max_position_embeddings / (turns * kTurn)) /
             (2 * std::log(rope.theta));
    };
    const double fast = pair_of(rope.beta_fast), slow = pair_of(rope.beta_slow);
    low_ = std::max(rope.truncate ? std::floor(fast) : fast, 0.0);
    high_ = std::min(rope.truncate ? std::ceil(slow) : slow, rotary_dim - 1.0);
    if (low_ == high_) high_ += 0.001;  // transformers' way to avoid 0 / 0
  }
  double Kept(int pair) const { return 1 - std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  double low_, high_;
};

// Dynamic NTK scaling: theta for a sequence of the served length.
double DynamicTheta(const RopeDesc& rope, int rotary_dim) {
  const double original = rope.original_max_position_embeddings;
  const double length = std::max(rope.served_positions, original);
  return rope.theta * std::pow(rope.factor * length / original - (rope.factor - 1),
                               rotary_dim / (rotary_dim - 2.0));
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeDesc& rope, int rotary_dim, RopeRange range) {
  using Scaling = RopeDesc::Scaling;
  const double theta =
      rope.scaling == Scaling::kDynamic ? DynamicTheta(rope, rotary_dim) : rope.theta;
  const YarnRange yarn(rope, rotary_dim);
  const std::vector<double>& factors =
      range == RopeRange::kLong ? rope.long_factors : rope.short_factors;
  std::vector<double> frequencies(rotary_dim / 2);
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const double plain = 1.0 / std::pow(theta, 2.0 * i / rotary_dim);
    double kept = 1;  // the share of the plain frequency; the rest is stretched
    if (rope.scaling == Scaling::kLinear) kept = 0;
    if (rope.scaling == Scaling::kLlama3) kept = Llama3Kept(rope, plain);
    if (rope.scaling == Scaling::kYarn) kept = yarn.Kept(i);
    if (rope.scaling == Scaling::kLongrope || rope.scaling == Scaling::kDivided) {
      frequencies[i] = plain / factors[i];
      continue;
    }
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

double LongropeAttentionFactor(double factor, double original_positions) {
  return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original_positions));
}

std::string RopeDesc::Canonical() const {
  std::string text = absl::StrFormat("%d %.17g %.17g %.17g %.17g %.17g %.17g %.17g %d %.17g",
                                     static_cast<int>(scaling), theta, factor, low_freq_factor,
                                     high_freq_factor, original_max_position_embeddings, beta_fast,
                                     beta_slow, truncate, attention_factor);
  for (const double value : short_factors) absl::StrAppendFormat(&text, " %.17g", value);
  for (const double value : long_factors) absl::StrAppendFormat(&text, " %.17g", value);
  return text;
}

RopeTable RopeTable::For(const RopeDesc& rope, int rotary_dim, int n_positions, RopeRange range) {
  const std::vector<double> frequencies = RopeFrequencies(rope, rotary_dim, range);
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
