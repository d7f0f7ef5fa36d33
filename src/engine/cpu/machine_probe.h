// What this machine can do at most, measured for a few milliseconds: the limits that `doctor` and
// `bench` print beside their figures. Shared machines vary, so measure right before and after.
#pragma once

#include <cstdint>

#include "engine/cpu/compute_pool.h"
#include "engine/cpu/isa.h"

namespace baton {

// GFLOP/s of the multiply-add instruction of a supported path on registers only, all members of the
// pool together; the best of several short runs.
double ProbeDotGflops(Isa isa, ComputePool& pool);

// GB/s at which all members together read `bytes` (>= 1 MiB) of pre-faulted memory linearly, each
// its own part, in the best of several ways and `rounds`. Choose more bytes than the caches hold to
// see memory. Needs AVX2.
double ProbeReadGbps(ComputePool& pool, int64_t bytes, int rounds = 3);

// The same on memory of the caller (64-byte aligned), for a limit on the very pages of a benchmark.
double ProbeReadGbps(ComputePool& pool, const void* memory, int64_t bytes, int rounds = 3);

}  // namespace baton
