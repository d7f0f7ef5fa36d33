// Measures this machine's limits for some milliseconds; `doctor` and `bench` print the limits
// beside their figures. Shared machines vary, so a benchmark probes right before and right after
// each of its samples, with few tries. Runs on the pool's caller, while no step runs.
#pragma once

#include <cstdint>

#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/cpu/machine/isa.h"
#include "engine/cpu/machine/weight_type.h"
#include "engine/threads/compute_pool.h"

namespace baton {

// Tries of a probe beside a sample: about 5 ms of multiply-adds; 640 MiB read, each way twice.
inline constexpr int kShortPeakTries = 3, kShortReadTries = 10;

// Peak in 10^9 operations per second (a multiply-add counts twice) of the instruction with which a
// supported path multiplies weights of this type (bf16: also the dot products of attention), on
// registers only, all members of the pool together; the best of `tries` runs of one to two
// milliseconds.
double ProbePeakGops(Isa isa, WeightType type, ComputePool& pool, int tries = 12);
inline double ProbeDotGflops(Isa isa, ComputePool& pool) {
  return ProbePeakGops(isa, WeightType::kBf16, pool);
}

// GB/s at which all members together read `bytes` (>= 1 MiB) of the caller's pre-faulted, 64-byte
// aligned memory, each member its own part: the fastest of `tries` pieces of 64 MiB, read in
// several ways in turns. Needs AVX2.
double ProbeReadGbps(ComputePool& pool, const void* memory, int64_t bytes, int tries = 20);

// Owns memory to read: random data, in huge pages where the system grants them. Choose more than
// the caches hold, 1 GiB or more, to measure the rate at which weights can be streamed.
class MemoryProbe {
 public:
  explicit MemoryProbe(int64_t bytes);
  double ReadGbps(ComputePool& pool, int tries = 20) const;
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  AlignedBuffer memory_;
  const void* data_;
};

}  // namespace baton
