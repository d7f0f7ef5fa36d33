// Brings the next K block of a work item's weights to L2 while the current one is multiplied, a few
// lines at a time: without it, lines would arrive at the pace of memory when they are needed, and
// nothing would be computed meanwhile. For kernel units.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/linear/linear_job.h"

namespace baton {
namespace {

class WeightPrefetch {
 public:
  WeightPrefetch() = default;
  // Prefetches `bytes` (whole lines) of each of `blocks` blocks, `block_bytes` apart, spread over
  // `chances` calls of Step.
  WeightPrefetch(const void* first, int64_t bytes, int64_t blocks, int64_t block_bytes,
                 int64_t chances)
      : line_(static_cast<const char*>(first)),
        block_bytes_(block_bytes),
        lines_per_block_(bytes / 64),
        left_in_block_(bytes / 64),
        left_(bytes / 64 * blocks),
        per_step_((left_ + chances - 1) / chances) {}
  // Prefetches groups [group, group + groups) of 32 k of `blocks` bf16 blocks from `first` on, as
  // far as they exist; behind the last group, the first ones of as many blocks from `next_first`
  // on.
  static WeightPrefetch OfGroups(const LinearJob& job, int64_t first, int64_t next_first,
                                 int64_t blocks, int64_t group, int64_t groups, int64_t chances) {
    constexpr int64_t kGroupBytes = 1024;  // of one block
    const int64_t all = job.k_padded / 32;
    if (group >= all) {
      group = 0;
      first = next_first;
    }
    if (first >= job.n_blocks) return {};
    if (blocks > job.n_blocks - first) blocks = job.n_blocks - first;
    const int64_t left = all - group;
    return {static_cast<const char*>(job.weights) + (first * all + group) * kGroupBytes,
            (groups < left ? groups : left) * kGroupBytes, blocks, all * kGroupBytes, chances};
  }

  void Step() {
    for (int64_t i = 0; i < per_step_ && left_ > 0; ++i, --left_) {
      _mm_prefetch(line_, _MM_HINT_T1);
      line_ += 64;
      if (--left_in_block_ == 0) {
        left_in_block_ = lines_per_block_;
        line_ += block_bytes_ - lines_per_block_ * 64;
      }
    }
  }

 private:
  const char* line_ = nullptr;
  int64_t block_bytes_ = 0, lines_per_block_ = 0;
  int64_t left_in_block_ = 0, left_ = 0, per_step_ = 0;
};

}  // namespace
}  // namespace baton
