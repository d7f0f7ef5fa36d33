// What this machine can do at most, measured for a few milliseconds: the limits that `doctor` and
// `bench` print beside their figures. Shared machines vary, so measure right before and after.
#pragma once

#include <cstdint>

#include "engine/cpu/aligned_buffer.h"
#include "engine/cpu/compute_pool.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/linear_job.h"

namespace baton {

// GFLOP/s of the multiply-add instruction of a supported path on registers only, all members of the
// pool together; the best of several short runs.
double ProbeDotGflops(Isa isa, ComputePool& pool);
// The same of the instructions that multiply weights of integers (int8 or int4), in 10^9 operations
// per second.
double ProbeIntegerGops(Isa isa, WeightType type, ComputePool& pool);

// GB/s at which all members together read `bytes` (>= 1 MiB) of pre-faulted memory of the caller
// (64-byte aligned), each its own part: the fastest piece of 64 MiB in the best of several ways,
// each tried on a part of the memory in each of `rounds`. Needs AVX2.
double ProbeReadGbps(ComputePool& pool, const void* memory, int64_t bytes, int rounds = 5);

// Memory of its own to read: random data, in huge pages where the system gives them. Choose more
// than the caches hold, 1 GiB or more, to see what weights can be streamed at.
class MemoryProbe {
 public:
  explicit MemoryProbe(int64_t bytes);
  double ReadGbps(ComputePool& pool, int rounds = 5) const;
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  AlignedBuffer memory_;
  const void* data_;
};

}  // namespace baton
