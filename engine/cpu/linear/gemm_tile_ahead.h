// Prefetches for a nest of tiles (gemm_tile_nest.h), a few lines at each step of its products:
// without them, lines would arrive at the pace of memory when they are needed. Addresses beyond the
// end are harmless: a prefetch never faults. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/gemm_tile.h"

namespace baton {
namespace {

constexpr int64_t kTwoLines = 128;

// Inlined early: g++ 12 removes calls of a function that only prefetches as having no effect.
template <int kHint>
inline __attribute__((always_inline)) void PrefetchTwoLines(const char* lines) {
  _mm_prefetch(lines, static_cast<_mm_hint>(kHint));
  _mm_prefetch(lines + 64, static_cast<_mm_hint>(kHint));
}

// Prefetches `bytes` consecutive bytes in `steps` steps; From sets the start.
template <int kHint>
class LinesAhead {
 public:
  LinesAhead() = default;
  LinesAhead(int64_t bytes, int64_t steps) : per_step_(DivideUp(bytes / kTwoLines, steps)) {}
  LinesAhead From(const void* lines) const {
    LinesAhead ahead = *this;
    ahead.at_ = static_cast<const char*>(lines);
    return ahead;
  }
  inline __attribute__((always_inline)) void Step() {
    for (int64_t i = 0; i < per_step_; ++i, at_ += kTwoLines) PrefetchTwoLines<kHint>(at_);
  }

 private:
  const char* at_ = nullptr;
  int64_t per_step_ = 0;
};

// Prefetches `bytes` of each of `blocks` blocks, block_bytes apart, one block after the other, in
// `steps` steps: the first two lines of every `unit` bytes, to L1 if `near`, to L2 otherwise.
class WeightsAhead {
 public:
  WeightsAhead() = default;
  WeightsAhead(const char* from, int64_t bytes, int64_t blocks, int64_t block_bytes, int64_t unit,
               bool near, int64_t steps)
      : at_(from),
        near_(near),
        unit_(unit),
        units_of_block_(DivideUp(bytes, unit)),
        left_in_block_(units_of_block_),
        left_(units_of_block_ * blocks),
        per_step_(DivideUp(left_, steps)),
        to_next_block_(block_bytes - units_of_block_ * unit) {}

  inline __attribute__((always_inline)) void Step() {
    for (int64_t i = Min(per_step_, left_); i > 0; --i) {
      if (near_) {
        PrefetchTwoLines<_MM_HINT_T0>(at_);
      } else {
        PrefetchTwoLines<_MM_HINT_T1>(at_);
      }
      at_ += unit_;
      --left_;
      if (--left_in_block_ == 0) {
        left_in_block_ = units_of_block_;
        at_ += to_next_block_;
      }
    }
  }

 private:
  const char* at_ = nullptr;
  bool near_ = false;
  int64_t unit_ = 0, units_of_block_ = 0;
  int64_t left_in_block_ = 0, left_ = 0, per_step_ = 0, to_next_block_ = 0;
};

}  // namespace
}  // namespace baton
