// Which token must come next so that reasoning ends in time (ReasoningBudget): once the budget is
// used up, the tokens of the end marker follow, from where the tokens before have begun it. A
// function of the parameters and of the tokens generated so far. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/sampling_params.h"

namespace baton {

class ReasoningBound {
 public:
  // `budget` must outlive it.
  explicit ReasoningBound(const ReasoningBudget& budget);

  // Takes the token that was generated now.
  void Push(int32_t token);
  // The only token that may be drawn next; nothing: the budget asks for none.
  std::optional<int32_t> forced() const;

 private:
  // The longest beginning of `tokens` that the pushed ones end with.
  class Match {
   public:
    explicit Match(std::span<const int32_t> tokens);
    void Push(int32_t token);
    size_t length() const { return length_; }
    bool is_whole() const { return length_ == tokens_.size(); }

   private:
    const std::span<const int32_t> tokens_;
    std::vector<size_t> shorter_;  // of each beginning, the longest shorter one that it ends with
    size_t length_ = 0;
  };
  enum class State { kBefore, kInside, kAfter };

  const ReasoningBudget& budget_;
  Match begin_, end_;
  State state_;
  int32_t n_before_ = 0, n_inside_ = 0;  // tokens in these states
};

}  // namespace baton
