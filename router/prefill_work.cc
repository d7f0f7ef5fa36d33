#include "router/prefill_work.h"

namespace baton {

PrefillWork PrefillWork::Of(int32_t tokens, int32_t before) {
  return {.tokens = tokens, .pairs = CausalPairs(tokens, before)};
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
