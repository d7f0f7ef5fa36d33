// `baton bench attention`: speed of the attention on every path of this machine, and of the
// sampler: prefill in GFLOP/s of visible (query, key) pairs, decode in GB/s of K and V read (bf16,
// and int8 with its scales), with the limits measured right before and after each sample.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/kernel_result.h"
#include "bench/probed_sample.h"
#include "common/status.h"
#include "engine/cpu/linear/linear.h"

namespace baton {

struct AttentionBenchOptions {
  std::vector<Isa> isas;  // empty: all that this machine has
  std::vector<int> threads = {1, 2};
  std::vector<int> contexts = {512, 4096};
  SamplePlan plan{.min_samples = 7, .seconds = 0.5};  // per measurement
  int group = 4;                                      // query heads that share a KV head
  int spin_us = 50;
  // K and V that decoding reads, of every type: more than caches hold (a server's L3 may hold 256
  // MiB, and then half of the limit and of the result are its own).
  int64_t decode_bytes = 768 << 20;
  bool json = false;
};

// Digests depend on type of KV, group, head size and context alone. InvalidArgument: a group
// outside 1-64, or a path that is not supported.
absl::StatusOr<std::vector<KernelResult>> MeasureAttention(const AttentionBenchOptions& options);
// Prints the table (and with json one object as the last line). Errors: those of MeasureAttention,
// and digests that differ between paths or numbers of threads.
absl::Status RunAttentionBench(const AttentionBenchOptions& options);

}  // namespace baton
