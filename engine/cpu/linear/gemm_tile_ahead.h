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

// Prefetches `bytes` of each of `blocks` blocks, block_bytes apart, to L2, evenly beside `steps`
// steps: pair of blocks by pair of blocks, one line of each of their pages in turn.
//
//   block b       page 0: line 0, 1, ..   page 1: line 0, 1, ..    turn 0 prefetches line 0 of all
//   block b + 1   page 0: line 0, 1, ..   page 1: line 0, 1, ..    four pages, turn 1 line 1, ..
//
// A prefetch from memory holds a buffer that loads from L2 need until its line comes. The machine's
// own prefetcher holds none, and follows each page some twenty lines ahead: with several pages in
// turn that is long enough for memory, and a prefetch finds its line in L2. (AMX Xeon, 2 cores, K
// 2,048, weights from memory, GB/s of weights, against one block after the other, two lines of
// four: bf16 64 rows 20.8 -> 26.1, 128 18.6 -> 21.4, with K 8,192 11.1 -> 17.4; int8 20.1 -> 22.6,
// 15.4 -> 16.9; 256 and 512 rows the same or up to 5 % more.)
class WeightsAhead {
 public:
  WeightsAhead() = default;
  WeightsAhead(const char* from, int64_t bytes, int64_t blocks, int64_t block_bytes, int64_t steps)
      : at_(from),
        block_bytes_(block_bytes),
        pages_(DivideUp(bytes, kPage)),
        lines_(DivideUp(bytes, pages_ * kLine)),
        lines_left_(lines_),
        turns_(DivideUp(blocks, 2) * lines_),
        steps_(steps) {}

  inline __attribute__((always_inline)) void Step() {
    for (due_ += turns_; due_ >= steps_; due_ -= steps_) Turn();
  }

 private:
  static constexpr int64_t kPage = 4096, kLine = 64;

  inline __attribute__((always_inline)) void Turn() {
    const char* line = at_;
    for (int64_t page = 0; page < pages_; ++page, line += lines_ * kLine) {
      _mm_prefetch(line, _MM_HINT_T1);
      _mm_prefetch(line + block_bytes_, _MM_HINT_T1);
    }
    at_ += kLine;
    if (--lines_left_ > 0) return;
    lines_left_ = lines_;
    at_ += 2 * block_bytes_ - lines_ * kLine;
  }

  const char* at_ = nullptr;
  int64_t block_bytes_ = 0;
  int64_t pages_ = 0, lines_ = 0;  // pages of a block, lines of a page
  int64_t lines_left_ = 0;         // of the pages of this pair
  int64_t turns_ = 0, steps_ = 1;
  int64_t due_ = 0;  // turns, times steps_
};

}  // namespace
}  // namespace baton
