#include "engine/checkpoint/finite_check.h"

#include <cstring>

namespace baton {
namespace {

// The value repeated in every lane of a word.
uint64_t InEveryLane(uint64_t value, int bytes) {
  uint64_t word = 0;
  for (int shift = 0; shift < 64; shift += bytes * 8) word |= value << shift;
  return word;
}

}  // namespace

int64_t FirstBadValue(std::span<const std::byte> values, FiniteRule rule) {
  // A lane's magnitude m is at most sign - 1, so m + (sign - limit) stays in its lane, and reaches
  // the sign bit exactly where m >= limit.
  const uint64_t sign = uint64_t{1} << (rule.bytes * 8 - 1);
  const uint64_t signs = InEveryLane(sign, rule.bytes);
  const uint64_t rise = InEveryLane(sign - rule.limit, rule.bytes);
  const size_t n_whole = values.size() / sizeof(uint64_t) * sizeof(uint64_t);
  for (size_t at = 0; at < values.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;  // the lanes beyond the end are zeros
    if (at < n_whole) {
      std::memcpy(&word, values.data() + at, sizeof(word));
    } else {
      std::memcpy(&word, values.data() + at, values.size() - at);
    }
    const uint64_t bad = ((word & ~signs) + rise) & signs;
    if (bad == 0) continue;
    return static_cast<int64_t>(at) / rule.bytes + __builtin_ctzll(bad) / (rule.bytes * 8);
  }
  return -1;
}

}  // namespace baton
