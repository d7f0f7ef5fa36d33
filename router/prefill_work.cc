#include "router/prefill_work.h"

namespace baton {

PrefillWork PrefillWork::Of(int32_t tokens, int32_t before) {
  return {.tokens = tokens, .pairs = CausalPairs(tokens, before)};
}

PrefillWork PrefillWork::Last(int64_t left) const {
  if (left >= tokens) return *this;
  const auto all = static_cast<double>(tokens), last = static_cast<double>(left);
  const double before = pairs / all - all / 2;  // CausalPairs: tokens * (before + tokens / 2)
  return {.tokens = left, .pairs = CausalPairs(last, before + all - last)};
}

PrefillWork& PrefillWork::operator+=(const PrefillWork& other) {
  tokens += other.tokens;
  pairs += other.pairs;
  return *this;
}

double WorkSeconds(const PrefillCost& cost, const PrefillWork& work) {
  return cost.Work(static_cast<double>(work.tokens), work.pairs);
}

}  // namespace baton
