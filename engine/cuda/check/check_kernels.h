// Small kernels of the check program: inputs, comparisons, and loads whose speed is a ceiling.
// Functions put work into a stream and return the launch's error. Pointers are device memory unless
// said otherwise.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <vector>

#include "engine/cuda/check/inputs.h"
#include "engine/cuda/kernel_launch.h"

namespace baton {

// A matrix of inputs: rows of k values.
struct InputMatrix {
  Distribution distribution = Distribution::kNormal;
  uint32_t seed = 0;
  uint32_t id = 0;
  int64_t rows = 0;
  int64_t k = 0;
};
cudaError_t FillInputs(uint16_t* values, InputMatrix matrix, cudaStream_t stream);

// Adds to *count the number of elements whose bits differ.
cudaError_t CountDifferent(const uint32_t* left, const uint32_t* right, int64_t n, uint64_t* count,
                           cudaStream_t stream);
// Compares `left` (m, n) with `right` (n, m) transposed in this way.
cudaError_t CountDifferentSwapped(const uint32_t* left, const uint32_t* right, int m, int n,
                                  uint64_t* count, cudaStream_t stream);
// Compares finite fp32, rounded to bf16, with bf16 in this way.
cudaError_t CountDifferentRounded(const float* left, const uint16_t* right, int64_t n,
                                  uint64_t* count, cudaStream_t stream);

// Reads n times 16 bytes; *sink gets something that depends on all of them.
cudaError_t ReadAll(const uint4* data, int64_t n, uint32_t* sink, cudaStream_t stream);
cudaError_t CopyAll(const uint4* from, uint4* to, int64_t n, cudaStream_t stream);

cudaError_t DoNothing(cudaStream_t stream);
// Ends when the host has written `value` to *flag, pinned host memory, or after 2^31 cycles.
cudaError_t SpinUntil(const volatile int* flag, int value, cudaStream_t stream);

// 2^x by ex2.approx: n values, then n by ex2.approx.ftz.
cudaError_t Exp2Of(const float* x, float* results, int n, cudaStream_t stream);

std::vector<KernelLaunch> CheckLaunches();

}  // namespace baton
