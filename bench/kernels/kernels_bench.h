// `baton bench kernels`, the linear layers: every path of this machine at few and many rows, with
// the limits measured right before and after each sample. Few rows stream the weights, so their
// limit is memory (GB/s of weights); many rows are bound by multiply-adds (GFLOP/s of the path's
// own instruction; 10^9 integer operations of int8 and int4 weights).
#pragma once

#include <cstdint>
#include <vector>

#include "bench/kernel_result.h"
#include "bench/probed_sample.h"
#include "common/status.h"
#include "engine/cpu/linear/weight_format.h"
#include "engine/cpu/machine/isa.h"

namespace baton {

struct KernelsBenchOptions {
  std::vector<Isa> isas;                     // empty: all that this machine has
  std::vector<WeightFormat> formats = {{}};  // weight formats; {} is bf16
  std::vector<int64_t> rows = {1, 8, 512};
  int64_t k = 2048, n = 8192;
  int threads = 2;
  int spin_us = 50;
  SamplePlan plan;  // per measurement
  // Few rows are measured on copies of the weights of this size together, more than caches hold.
  int64_t stream_bytes = kProbeBytes;
  bool plain = true;  // measures a plain chain too, which shows the cost of the exact order
  bool json = false;
};

// Digests (xxh64 of the bf16 output) depend on rows, k and n alone: not on path, threads or
// machine. Fails where a path is not supported or does not pass its self-test.
absl::StatusOr<std::vector<KernelResult>> MeasureKernels(const KernelsBenchOptions& options);

// Prints the table (and with json one object as the last line). Returns the exit code: 1 with the
// reason on stderr if a measurement failed or two paths' digests differ.
int RunKernelsBench(const KernelsBenchOptions& options);

}  // namespace baton
