#include "engine/sampling/row_logprobs.h"

#include <algorithm>
#include <limits>

#include "engine/numerics/log.h"

namespace baton {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

RowLogprobs::RowLogprobs(std::span<const float> logits)
    : logits_(logits), top_(FindTopLogit(logits.data(), static_cast<int64_t>(logits.size()))) {
  if (top_.value == kMinusInfinity) return;
  log_total_ = NaturalLog(WeighLogits(logits.data(), static_cast<int64_t>(logits.size()),
                                      top_.value, static_cast<float>(kLog2E), nullptr, nullptr));
}

float RowLogprobs::Of(int32_t token) const {
  if (top_.value == kMinusInfinity || static_cast<uint32_t>(token) >= logits_.size())
    return kMinusInfinity;
  const float logit = logits_[static_cast<size_t>(token)];
  if (!(logit == logit)) return kMinusInfinity;
  const double gap = static_cast<double>(std::min(logit, std::numeric_limits<float>::max())) -
                     static_cast<double>(top_.value);
  return static_cast<float>(gap - log_total_);
}

int32_t RowLogprobs::RankOf(int32_t token, size_t end) const {
  const auto n = static_cast<int64_t>(std::min(end, logits_.size()));
  const bool is_there = static_cast<uint32_t>(token) < logits_.size();
  const float logit = is_there ? logits_[static_cast<size_t>(token)] : kMinusInfinity;
  return static_cast<int32_t>(CountBefore(logits_.data(), n, logit, token)) + 1;
}

void RowLogprobs::AppendTop(int k, size_t end, std::vector<TokenLogprob>* out) const {
  const auto n = static_cast<int64_t>(std::min(end, logits_.size()));
  std::vector<TopLogit> ranked(static_cast<size_t>(std::clamp<int64_t>(k, 0, n)));
  FindTopLogits(logits_.data(), n, static_cast<int64_t>(ranked.size()), ranked.data());
  for (const TopLogit& entry : ranked) out->push_back({entry.token, Of(entry.token)});
}

}  // namespace baton
