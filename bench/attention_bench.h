// Speed of the attention and the sampler: prefill in GFLOP/s of visible (query, key) pairs, decode
// in GB/s of K and V read (bf16, and int8 with its scales), beside the limits measured in the same
// run.
#pragma once

#include <vector>

#include "bench/kernel_result.h"
#include "engine/cpu/linear.h"

namespace baton {

struct AttentionBenchOptions {
  Isa isa = Isa::kAvx2;
  std::vector<int> threads = {1, 2};
  std::vector<int> contexts = {512, 4096};
  double seconds = 0.5;  // per measurement; the fastest run counts
  int spin_us = 50;
  bool json = false;
};

std::vector<KernelResult> MeasureAttention(const AttentionBenchOptions& options);
// Prints the table (and with json one object as the last line).
void RunAttentionBench(const AttentionBenchOptions& options);

}  // namespace baton
