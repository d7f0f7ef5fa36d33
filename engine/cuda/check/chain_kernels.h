// Kernels that do matrix operations and nothing else: chains of dependent ones, whose latency
// bounds a linear layer of one row (one accumulator takes all of K), and as many as the GPU can do
// at once. Functions put work into a stream and return the launch's error; InvalidValue: no such
// kernel.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <vector>

#include "engine/cuda/kernel_launch.h"

namespace baton {

// One block; `steps` operations in each of `chains` (1, 2 or 4) chains of one warp, or warpgroup.
// `operands`: (256, 64) bf16 of device memory. *cycles: the SM's clock from first to last.
// *sink gets something that depends on all sums.
struct ChainRun {
  int chains = 1;
  int steps = 0;  // a multiple of 32
  const uint16_t* operands = nullptr;
  uint64_t* cycles = nullptr;
  float* sink = nullptr;
};
cudaError_t RunMmaChain(const ChainRun& run, cudaStream_t stream);
// tile_n: 8 or 64 with 1, 2 or 4 chains, 128 with 1 or 2, 256 with 1.
cudaError_t RunWgmmaChain(int tile_n, const ChainRun& run, cudaStream_t stream);

// Operations wgmma m64n256k16 of two warpgroups in each of `blocks` blocks, `steps` per warpgroup.
cudaError_t RunWgmmaRate(int blocks, const ChainRun& run, cudaStream_t stream);

std::vector<KernelLaunch> ChainLaunches();

}  // namespace baton
