#include "engine/sampling/reasoning_bound.h"

namespace baton {
namespace {

// Answers may begin with white space: so many tokens before the begin marker.
constexpr size_t kMaxBefore = 2;

}  // namespace

ReasoningBound::Match::Match(std::span<const int32_t> tokens)
    : tokens_(tokens), shorter_(tokens.size() + 1) {
  for (size_t n = 1; n < tokens.size(); ++n) {
    size_t shorter = shorter_[n];
    while (shorter > 0 && tokens[shorter] != tokens[n]) shorter = shorter_[shorter];
    shorter_[n + 1] = shorter + (tokens[shorter] == tokens[n] ? 1 : 0);
  }
}

void ReasoningBound::Match::Push(int32_t token) {
  if (is_whole()) length_ = shorter_[length_];
  while (length_ > 0 && tokens_[length_] != token) length_ = shorter_[length_];
  if (!tokens_.empty() && tokens_[length_] == token) ++length_;
}

ReasoningBound::ReasoningBound(const ReasoningBudget& budget)
    : budget_(budget),
      begin_(budget.begin),
      end_(budget.end),
      state_(budget.end.empty()     ? State::kAfter
             : budget.begin.empty() ? State::kInside
                                    : State::kBefore) {}

void ReasoningBound::Push(int32_t token) {
  switch (state_) {
    case State::kBefore:
      ++n_before_;
      begin_.Push(token);
      if (begin_.is_whole()) {
        state_ = State::kInside;
      } else if (static_cast<size_t>(n_before_) >= budget_.begin.size() + kMaxBefore) {
        state_ = State::kAfter;
      }
      break;
    case State::kInside:
      ++n_inside_;
      end_.Push(token);
      if (end_.is_whole()) state_ = State::kAfter;
      break;
    case State::kAfter:
      break;
  }
}

std::optional<int32_t> ReasoningBound::forced() const {
  if (state_ != State::kInside || n_inside_ < budget_.max_tokens) return std::nullopt;
  return budget_.end[end_.length()];
}

}  // namespace baton
