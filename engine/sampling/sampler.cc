#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "engine/numerics/philox.h"
#include "engine/sampling/row_logprobs.h"
#include "engine/sampling/sampler_rows.h"
#include "engine/sampling/token_filter.h"
#include "engine/threads/mxcsr.h"

namespace baton {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

float FloatBelow(double x) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  return x <= double{kLowest} ? kLowest
                              : std::max(kLowest, std::nextafter(static_cast<float>(x), kLowest));
}

}  // namespace

// Needs the numerics MXCSR.
class Sampler::Member {
 public:
  SampledToken Sample(const SampleRow& row);

 private:
  int32_t Draw(std::span<const float> logits, float top, const SamplingParams& params,
               int64_t position);
  int32_t DrawFromAll(double target) const;
  int32_t DrawFrom(std::span<const int32_t> tokens, double uniform) const;

  std::vector<float> changed_;  // (vocab) logits with bias, penalties and masks
  std::vector<float> weights_;  // (vocab)
  std::vector<double> block_sums_;
  TokenFilter filter_;
};

Sampler::Sampler(ComputePool* pool)
    : pool_(pool), members_(static_cast<size_t>(pool != nullptr ? pool->n_threads() : 1)) {}
Sampler::~Sampler() = default;

SampledToken Sampler::Sample(std::span<const float> logits, const SequenceSampling& sampling,
                             int64_t position) {
  const NumericsMxcsrScope mxcsr;
  return members_[0].Sample({logits, &sampling, position});
}

SampledToken Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                             int64_t position) {
  return Sample(logits, SequenceSampling(params), position);
}

void Sampler::SampleRows(std::span<const SampleRow> rows, std::span<SampledToken> sampled) {
  BATON_CHECK(rows.size() == sampled.size());
  const auto sample = [&](int64_t row, int member) {
    const size_t i = static_cast<size_t>(row);
    sampled[i] = members_[static_cast<size_t>(member)].Sample(rows[i]);
  };
  const int64_t n = static_cast<int64_t>(rows.size());
  if (pool_ != nullptr) return pool_->For(n, sample);
  const NumericsMxcsrScope mxcsr;
  for (int64_t row = 0; row < n; ++row) sample(row, 0);
}

void Sampler::ScoreRows(std::span<const float> logits, std::span<const int32_t> tokens, int top,
                        size_t end, std::span<PromptLogprob> scored) {
  BATON_CHECK(!tokens.empty() && tokens.size() == scored.size());
  BATON_CHECK(logits.size() % tokens.size() == 0);
  const size_t vocab = logits.size() / tokens.size();
  const auto score = [&](int64_t row, int) {
    const size_t i = static_cast<size_t>(row);
    const RowLogprobs logprobs(logits.subspan(i * vocab, vocab));
    scored[i] = {.logprob = logprobs.Of(tokens[i]), .rank = logprobs.RankOf(tokens[i], end)};
    logprobs.AppendTop(top, end, &scored[i].top);
  };
  const int64_t n = static_cast<int64_t>(tokens.size());
  if (pool_ != nullptr) return pool_->For(n, score);
  const NumericsMxcsrScope mxcsr;
  for (int64_t row = 0; row < n; ++row) score(row, 0);
}

SampledToken Sampler::Member::Sample(const SampleRow& row) {
  const SequenceSampling& sampling = *row.sampling;
  const SamplingParams& params = sampling.params();
  BATON_CHECK(!row.logits.empty());
  const RowLogprobs logprobs(row.logits);
  std::span<const float> logits = row.logits.first(sampling.DrawableOf(row.logits.size()));
  if (sampling.ChangesLogits()) {
    changed_.resize(logits.size());
    sampling.ChangeLogits(logits, changed_);
    logits = changed_;
  }
  TopLogit top = logprobs.top();
  if (sampling.ChangesLogits() || static_cast<size_t>(top.token) >= logits.size())
    top = FindTopLogit(logits.data(), static_cast<int64_t>(logits.size()));
  SampledToken sampled{.token = top.token};
  if (top.value > kMinusInfinity && params.temperature > 0)
    sampled.token = Draw(logits, top.value, params, row.position);
  sampled.logprob = logprobs.Of(sampled.token);
  logprobs.AppendTop(params.top_logprobs, logits.size(), &sampled.logprobs);
  for (const int32_t token : params.logprob_tokens)
    sampled.logprobs.push_back({token, logprobs.Of(token)});
  return sampled;
}

int32_t Sampler::Member::Draw(std::span<const float> logits, float top,
                              const SamplingParams& params, int64_t position) {
  const size_t n = logits.size();
  const double c = std::min(kLog2E / static_cast<double>(params.temperature), 1e30);
  weights_.resize(n);
  block_sums_.resize((n + kWeightBlock - 1) / kWeightBlock);
  double total = WeighLogits(logits.data(), static_cast<int64_t>(n), top, static_cast<float>(c),
                             weights_.data(), block_sums_.data());
  if (params.min_p > 0)
    total = DropWeightsBelow(weights_.data(), static_cast<int64_t>(n), params.min_p,
                             block_sums_.data());
  const double uniform = UniformAt(params.seed, position, 0);
  const bool top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < n;
  if (!top_k && !(params.top_p < 1.0f)) return DrawFromAll(uniform * total);
  // Weights below 2^-126 are 0. The bound is one octave lower, and rounded down, for the rounding
  // of the difference.
  const double floor = static_cast<double>(top) - 127.0 / c;
  return DrawFrom(
      filter_.Keep({logits, weights_}, top, FloatBelow(floor), params.top_k, params.top_p),
      uniform);
}

// The token whose share of [0, total) contains target.
int32_t Sampler::Member::DrawFromAll(double target) const {
  double below = 0;
  size_t block = 0;
  while (block + 1 < block_sums_.size() && below + block_sums_[block] <= target)
    below += block_sums_[block++];
  size_t i = block * kWeightBlock;
  const size_t end = std::min(i + kWeightBlock, weights_.size());
  for (; i < end; ++i) {
    below += static_cast<double>(weights_[i]);
    if (below > target) return static_cast<int32_t>(i);
  }
  // Rounding may carry the walk past the block's end: take the last token with any weight.
  while (weights_[--i] == 0) {
  }
  return static_cast<int32_t>(i);
}

int32_t Sampler::Member::DrawFrom(std::span<const int32_t> tokens, double uniform) const {
  double total = 0;
  for (const int32_t token : tokens)
    total += static_cast<double>(weights_[static_cast<size_t>(token)]);
  const double target = uniform * total;
  double below = 0;
  int32_t last = tokens.front();
  for (const int32_t token : tokens) {
    const float weight = weights_[static_cast<size_t>(token)];
    if (weight == 0) continue;
    last = token;
    below += static_cast<double>(weight);
    if (below > target) break;
  }
  return last;
}

}  // namespace baton
