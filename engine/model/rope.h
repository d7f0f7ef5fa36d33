// Rotary position embedding (arXiv 2104.09864): the angles by which a position turns the pairs of a
// head, and the scaling rules of transformers (modeling_rope_utils; YaRN is arXiv 2309.00071,
// LongRoPE 2402.13753) that stretch the angles for longer contexts (docs/MODELS.md).
// Frequencies are fixed when a model is loaded; the table is computed from them in double precision
// (docs/NUMERICS.md N5). Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

// The set of longrope factors of a sequence. Chosen once, by the maximum number of tokens the
// sequence may reach, and never changed, because keys in the cache cannot be rotated again. Other
// scalings have only kShort.
enum class RopeRange : uint8_t { kShort, kLong };

struct RopeDesc {
  enum class Scaling { kNone, kLlama3, kLinear, kYarn, kDynamic, kLongrope, kDivided };
  Scaling scaling = Scaling::kNone;
  double theta = 10000.0;
  double factor = 1.0;  // factor of the scaling, for all kinds
  // Positions of the model before scaling (llama3, yarn, dynamic); for longrope the longest
  // sequence of the short range.
  double original_max_position_embeddings = 8192;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;        // yarn: pairs with more turns in the original positions stay;
  double beta_slow = 1.0;         // pairs with fewer are stretched by the whole factor
  bool truncate = true;           // yarn: round the range between the two to whole pairs
  double attention_factor = 1.0;  // yarn, longrope: factor of cos and sin
  // dynamic: the longest sequence served. transformers lets theta grow with each sequence, which
  // cached keys cannot follow; here every sequence has the theta of the served context.
  double served_positions = 0;
  // longrope: divisors of the plain frequency of each pair. divided: uses short_factors only.
  std::vector<double> short_factors, long_factors;

  // The range of a sequence of at most `max_total_tokens` tokens, future tokens included.
  RopeRange RangeOf(int64_t max_total_tokens) const {
    return scaling == Scaling::kLongrope &&
                   static_cast<double>(max_total_tokens) > original_max_position_embeddings
               ? RopeRange::kLong
               : RopeRange::kShort;
  }
  // The longest sequence of the short range, in tokens; 0: all sequences have one range.
  int32_t ShortRangeTokens() const {
    return scaling == Scaling::kLongrope ? static_cast<int32_t>(original_max_position_embeddings)
                                         : 0;
  }
  // All fields, as text.
  std::string Canonical() const;
};

// (rotary_dim / 2) radians per position, after scaling. rotary_dim: values of a head that are
// rotated.
std::vector<double> RopeFrequencies(const RopeDesc& rope, int rotary_dim,
                                    RopeRange range = RopeRange::kShort);

// yarn's attention_factor if the config has none: 0.1 ln factor + 1, or the ratio of two such terms
// weighted with mscale and mscale_all_dim if both are given (not 0).
double YarnScale(double factor, double weight);  // one term: 0.1 weight ln(factor) + 1
double YarnAttentionFactor(double factor, double mscale, double mscale_all_dim);

// longrope's attention_factor if the config has none; factor: longest over original context.
double LongropeAttentionFactor(double factor, double original_positions);

// (positions, rotary_dim / 2) attention_factor times cos and sin of position * frequency, fp32
// rounded from double.
struct RopeTable {
  std::vector<float> cos, sin;
  static RopeTable For(const RopeDesc& rope, int rotary_dim, int n_positions,
                       RopeRange range = RopeRange::kShort);
};

}  // namespace baton
