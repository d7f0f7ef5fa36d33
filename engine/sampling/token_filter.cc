#include "engine/sampling/token_filter.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "engine/sampling/sampler_rows.h"

namespace baton {
namespace {

// A border this small is sorted.
constexpr int64_t kBorderTokens = 256;
// Minimum of top_p, so that the top token is always kept.
constexpr double kMinShare = 1e-9;

int64_t Size(const WeightedTokens& row) { return static_cast<int64_t>(row.logits.size()); }

}  // namespace

std::span<const int32_t> TokenFilter::Keep(const WeightedTokens& row, float top, float floor,
                                           int32_t top_k, float top_p) {
  const bool few = top_k > 0 && top_k < Size(row), likely = top_p < 1;
  if (likely && !few) {
    KeepFirst(row, top, floor, By::kMass, static_cast<double>(top_p));
    return kept_;
  }
  KeepFirst(row, top, floor, By::kCount, static_cast<double>(few ? top_k : Size(row)));
  if (!likely) return kept_;
  ids_ = kept_;
  logits_.resize(ids_.size());
  weights_.resize(ids_.size());
  for (size_t i = 0; i < ids_.size(); ++i) {
    logits_[i] = row.logits[static_cast<size_t>(ids_[i])];
    weights_[i] = row.weights[static_cast<size_t>(ids_[i])];
  }
  KeepFirst({logits_, weights_}, top, floor, By::kMass, static_cast<double>(top_p));
  for (int32_t& token : kept_) token = ids_[static_cast<size_t>(token)];
  return kept_;
}

// Leaves in kept_ the first tokens whose number, or whose share of the row's mass, reaches `limit`.
void TokenFilter::KeepFirst(const WeightedTokens& row, float top, float floor, By by,
                            double limit) {
  const auto sum_from = [&](float threshold) {
    return SumFrom(row.logits.data(), row.weights.data(), Size(row), threshold);
  };
  const auto quantity = [by](const SumAbove& sum) {
    return by == By::kCount ? static_cast<double>(sum.count) : sum.mass;
  };
  // low reaches the limit, high does not. Denormals count as zero here.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float low = floor;
  float high = top == 0 ? std::numeric_limits<float>::min() : std::nextafter(top, kInfinity);
  SumAbove at_low = sum_from(low), at_high = {0, 0};
  if (by == By::kMass) limit = std::max(limit, kMinShare) * at_low.mass;
  if (quantity(at_low) < limit) at_high = at_low, high = low;
  while (low < high && at_low.count - at_high.count > kBorderTokens) {
    const float middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;  // all of the border has one value
    const SumAbove sum = sum_from(middle);
    if (quantity(sum) >= limit) {
      low = middle;
      at_low = sum;
    } else {
      high = middle;
      at_high = sum;
    }
  }
  SortBorder(row, low, high);
  double reached = quantity(at_high);
  size_t taken = 0;
  while (taken < border_.size() && (reached < limit || at_high.count + taken == 0)) {
    const float weight = row.weights[static_cast<size_t>(border_[taken++])];
    reached += by == By::kCount ? 1.0 : static_cast<double>(weight);
  }
  const int64_t above = IndicesFrom(row.logits.data(), Size(row), high, found_.data());
  kept_.assign(found_.begin(), found_.begin() + above);
  kept_.insert(kept_.end(), border_.begin(), border_.begin() + static_cast<std::ptrdiff_t>(taken));
  std::sort(kept_.begin() + above, kept_.end());
  std::inplace_merge(kept_.begin(), kept_.begin() + above, kept_.end());
}

// border_ = tokens with low <= logit < high, best first.
void TokenFilter::SortBorder(const WeightedTokens& row, float low, float high) {
  const auto logit = [&row](int32_t i) {
    return std::min(row.logits[static_cast<size_t>(i)], std::numeric_limits<float>::max());
  };
  found_.resize(std::max(found_.size(), row.logits.size()));
  const int64_t from_low = IndicesFrom(row.logits.data(), Size(row), low, found_.data());
  border_.clear();
  std::copy_if(found_.begin(), found_.begin() + from_low, std::back_inserter(border_),
               [&](int32_t i) { return logit(i) < high; });
  const auto better = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  // A border of a single value is already in order, however long.
  if (!std::is_sorted(border_.begin(), border_.end(), better))
    std::sort(border_.begin(), border_.end(), better);
}

}  // namespace baton
