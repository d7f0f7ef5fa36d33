#include "engine/sampling/sequence_sampling.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace baton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// NaN counts as -inf, and +inf as the greatest finite number, before anything is done to a logit:
// sums and products below never make a NaN.
float Sane(float logit) {
  return logit == logit ? std::min(logit, std::numeric_limits<float>::max()) : -kInfinity;
}

bool Has(std::span<const float> logits, int32_t token) {
  return static_cast<uint32_t>(token) < logits.size();
}

bool IsSet(std::span<const uint32_t> bits, size_t i) {
  return (bits[i / 32] >> (i % 32) & 1u) != 0;
}

void Mask(std::span<float> logits, int32_t token) {
  if (Has(logits, token)) logits[static_cast<size_t>(token)] = -kInfinity;
}

// Returns the distinct tokens, ascending. A bitmap, for prompts may have 100,000 tokens.
std::vector<int32_t> Distinct(std::span<const int32_t> tokens) {
  std::vector<int32_t> distinct;
  if (tokens.empty()) return distinct;
  BATON_CHECK(*std::min_element(tokens.begin(), tokens.end()) >= 0);
  const int32_t last = *std::max_element(tokens.begin(), tokens.end());
  std::vector<bool> is_met(static_cast<size_t>(last) + 1);
  size_t n = 0;
  for (const int32_t token : tokens) {
    n += !is_met[static_cast<size_t>(token)];
    is_met[static_cast<size_t>(token)] = true;
  }
  distinct.reserve(n);
  for (int32_t token = 0; token <= last; ++token)
    if (is_met[static_cast<size_t>(token)]) distinct.push_back(token);
  return distinct;
}

}  // namespace

SequenceSampling::SequenceSampling(const SamplingParams& params,
                                   std::span<const int32_t> stop_tokens,
                                   std::span<const int32_t> history, int32_t n_generated,
                                   const TokenGrammar* grammar)
    : params_(params),
      stop_tokens_(stop_tokens.begin(), stop_tokens.end()),
      counts_tokens_(params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                     params.frequency_penalty != 0),
      reasoning_(params_.reasoning) {
  is_plain_ = !counts_tokens_ && params.logit_bias.empty() && params.allowed_tokens.empty() &&
              params.bad_words.empty();
  BATON_CHECK((grammar != nullptr) == (params.grammar.kind != GrammarKind::kNone));
  if (grammar != nullptr) {
    auto matcher = grammar->NewMatcher();
    status_ = matcher.status();
    if (matcher.ok()) {
      matcher_ = *std::move(matcher);
      mask_.resize(matcher_->mask_words());
    }
  }
  for (const std::vector<int32_t>& word : params.bad_words)
    max_tail_ = std::max(max_tail_, word.size() - 1);
  if (history.empty()) {
    n_generated_ = n_generated;
    return;
  }
  BATON_CHECK(n_generated >= 0 && static_cast<size_t>(n_generated) < history.size());
  const size_t n_prompt = history.size() - static_cast<size_t>(n_generated);
  if (params.repetition_penalty != 1)
    for (const int32_t token : Distinct(history.first(n_prompt))) seen_.push_back({token, 0});
  for (const int32_t token : history.subspan(n_prompt)) Push(token);
}

void SequenceSampling::Push(int32_t token) {
  ++n_generated_;
  reasoning_.Push(token);
  if (has_grammar() && status_.ok()) status_ = matcher_->Push(token);
  if (counts_tokens_) {
    auto at = std::lower_bound(seen_.begin(), seen_.end(), token,
                               [](const Seen& seen, int32_t id) { return seen.token < id; });
    if (at == seen_.end() || at->token != token) at = seen_.insert(at, {token, 0});
    ++at->n_generated;
  }
  if (max_tail_ == 0) return;
  if (tail_.size() == max_tail_) tail_.erase(tail_.begin());
  tail_.push_back(token);
}

void SequenceSampling::MakeMask() {
  if (has_grammar() && status_.ok()) status_ = matcher_->FillMask(mask_);
}

size_t SequenceSampling::DrawableOf(size_t vocab) const {
  return params_.vocab_end > 0 ? std::min(vocab, static_cast<size_t>(params_.vocab_end)) : vocab;
}

void SequenceSampling::ChangeLogits(std::span<const float> logits, std::span<float> changed) const {
  BATON_CHECK(logits.size() == changed.size());
  if (params_.allowed_tokens.empty()) {
    std::copy(logits.begin(), logits.end(), changed.begin());
  } else {
    std::fill(changed.begin(), changed.end(), -kInfinity);
    for (const int32_t token : params_.allowed_tokens)
      if (Has(logits, token))
        changed[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
  }
  for (const auto& [token, bias] : params_.logit_bias) {
    if (!Has(logits, token)) continue;
    float& logit = changed[static_cast<size_t>(token)];
    logit = Sane(logit) + bias;
  }
  Penalize(changed);
  MaskBadWords(changed);
  if (has_grammar()) MaskByGrammar(changed);
  if (MasksStops())
    for (const int32_t token : stop_tokens_) Mask(changed, token);
  if (reasoning_.must_end() && GrammarAllows(params_.reasoning.end))
    Force(params_.reasoning.end, changed);
}

void SequenceSampling::Force(int32_t token, std::span<float> logits) const {
  if (!Has(logits, token)) return;
  std::fill(logits.begin(), logits.end(), -kInfinity);
  logits[static_cast<size_t>(token)] = 0;
}

void SequenceSampling::Penalize(std::span<float> logits) const {
  const float repetition = params_.repetition_penalty;
  for (const auto& [token, n_generated] : seen_) {
    if (!Has(logits, token)) break;  // tokens ascend
    float logit = Sane(logits[static_cast<size_t>(token)]);
    if (repetition != 1) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (n_generated > 0) {
      logit -= params_.frequency_penalty * static_cast<float>(n_generated);
      logit -= params_.presence_penalty;
    }
    logits[static_cast<size_t>(token)] = logit;
  }
}

void SequenceSampling::MaskBadWords(std::span<float> logits) const {
  for (const std::vector<int32_t>& word : params_.bad_words) {
    const std::span<const int32_t> before = std::span(word).first(word.size() - 1);
    if (before.size() > tail_.size()) continue;
    if (std::equal(before.begin(), before.end(),
                   tail_.end() - static_cast<std::ptrdiff_t>(before.size())))
      Mask(logits, word.back());
  }
}

bool SequenceSampling::GrammarAllows(int32_t token) const {
  if (!has_grammar()) return true;
  const auto i = static_cast<size_t>(token);
  return i < mask_.size() * 32 && IsSet(mask_, i);
}

void SequenceSampling::MaskByGrammar(std::span<float> logits) const {
  const size_t n_masked = std::min(logits.size(), mask_.size() * 32);
  for (size_t i = 0; i < n_masked; ++i) logits[i] = IsSet(mask_, i) ? logits[i] : -kInfinity;
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(n_masked), logits.end(), -kInfinity);
}

}  // namespace baton
