// Brings the next K block of a work item's weights to L2 while the present one is multiplied, a few
// lines at a time: read when they are needed, they would arrive at the pace of memory and nothing
// would be computed meanwhile. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear_job.h"

namespace baton {
namespace {

class WeightPrefetch {
 public:
  // Groups [group, group + groups) of `blocks` blocks from `first` on, as far as they exist, in
  // `chances` calls of Step.
  WeightPrefetch(const LinearJob& job, int64_t first, int64_t blocks, int64_t group, int64_t groups,
                 int64_t chances) {
    const int64_t all_groups = job.k_padded / 32;
    if (group >= all_groups) return;
    constexpr int64_t kGroup = 512;  // bf16s of a block and group: 16 lines
    block_stride_ = all_groups * kGroup;
    line_ = job.weights + first * block_stride_ + group * kGroup;
    lines_per_block_ = (groups < all_groups - group ? groups : all_groups - group) * 16;
    left_in_block_ = lines_per_block_;
    left_ = lines_per_block_ * blocks;
    per_step_ = (left_ + chances - 1) / chances;
  }

  void Step() {
    for (int64_t i = 0; i < per_step_ && left_ > 0; ++i, --left_) {
      _mm_prefetch(reinterpret_cast<const char*>(line_), _MM_HINT_T1);
      line_ += 32;
      if (--left_in_block_ == 0) {
        left_in_block_ = lines_per_block_;
        line_ += block_stride_ - lines_per_block_ * 32;
      }
    }
  }

 private:
  const bf16* line_ = nullptr;
  int64_t block_stride_ = 0, lines_per_block_ = 0;
  int64_t left_in_block_ = 0, left_ = 0, per_step_ = 0;
};

}  // namespace
}  // namespace baton
