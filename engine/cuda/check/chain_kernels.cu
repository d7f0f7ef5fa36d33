#include "engine/cuda/check/chain_kernels.h"

#include "engine/cuda/mma.cuh"
#include "engine/cuda/shared_tile.cuh"
#include "engine/cuda/wgmma.cuh"

namespace baton {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kGroupSteps = 32;

template <int kChains>
__global__ void __launch_bounds__(32) MmaChainKernel(ChainRun run) {
  const uint32_t* pairs = reinterpret_cast<const uint32_t*>(run.operands) + threadIdx.x * 8;
  const uint32_t a[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  const uint32_t b[2] = {pairs[4], pairs[5]};
  float sums[kChains][4] = {};
  const long long start = clock64();
  for (int step = 0; step < run.steps; step += 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) MmaAdd(sums[chain], a, b);
  }
  float total = 0;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain)
    total += sums[chain][0] + sums[chain][1] + sums[chain][2] + sums[chain][3];
  const long long end = clock64();
  if (threadIdx.x == 0) *run.cycles = static_cast<uint64_t>(end - start);
  if (total == 1.2345e30f) *run.sink = total;
}

// Copies 64 rows per warpgroup and kTileN rows to shared memory; returns the address of the first.
template <int kTileN, int kThreads>
__device__ uint32_t LoadTiles(const uint16_t* operands) {
  const uint32_t tiles = (SharedBase() + 1023u) & ~1023u;
  constexpr int kRows = kThreads / 2;
  CopyTile<kRows, kThreads>(tiles, operands, 0, 256, kTileK, 0);
  CopyTile<kTileN, kThreads>(tiles + kRows * kTileRowBytes, operands, 0, 256, kTileK, 0);
  CommitCopies();
  WaitForCopies<0>();
  ShowToWgmma();
  __syncthreads();
  return tiles;
}

// Groups of operations are waited for, because the assembler serialises those that go on over the
// end of a loop; the wait is a small part of a group of 32.
template <int kTileN, int kChains>
__device__ __forceinline__ void RunSteps(float (&sums)[kChains][kTileN / 2], uint32_t a_tile,
                                         uint32_t b_tile, int steps) {
#pragma unroll 1
  for (int step = 0; step < steps; step += kGroupSteps) {
    WarpgroupFence();
#pragma unroll
    for (int i = 0; i < kGroupSteps; ++i)
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain)
        Wgmma<kTileN>::Add(sums[chain], SwizzledTile(a_tile + i % 4 * 32),
                           SwizzledTile(b_tile + i % 4 * 32));
    WarpgroupCommit();
    WarpgroupWait<0>();
  }
}

template <int kTileN, int kChains, int kThreads>
__global__ void __launch_bounds__(kThreads, 1) WgmmaChainKernel(ChainRun run) {
  const uint32_t tiles = LoadTiles<kTileN, kThreads>(run.operands);
  const uint32_t a_tile = tiles + threadIdx.x / kWarpgroup * 64 * kTileRowBytes;
  float sums[kChains][kTileN / 2];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain)
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) sums[chain][i] = 0.0f;
  const long long start = clock64();
  RunSteps<kTileN, kChains>(sums, a_tile, tiles + kThreads / 2 * kTileRowBytes, run.steps);
  const long long end = clock64();
  float total = 0;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain)
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) total += sums[chain][i];
  if (threadIdx.x == 0 && blockIdx.x == 0) *run.cycles = static_cast<uint64_t>(end - start);
  if (total == 1.2345e30f) *run.sink = total;
}

template <int kTileN, int kThreads>
constexpr int kSharedBytes = 1024 + (kThreads / 2 + kTileN) * kTileRowBytes;

template <int kTileN, int kChains, int kThreads>
cudaError_t Launch(int blocks, const ChainRun& run, cudaStream_t stream) {
  constexpr int kBytes = kSharedBytes<kTileN, kThreads>;
  const auto kernel = WgmmaChainKernel<kTileN, kChains, kThreads>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<blocks, kThreads, kBytes, stream>>>(run);
  return cudaGetLastError();
}

}  // namespace

cudaError_t RunMmaChain(const ChainRun& run, cudaStream_t stream) {
  switch (run.chains) {
    case 1:
      MmaChainKernel<1><<<1, 32, 0, stream>>>(run);
      break;
    case 2:
      MmaChainKernel<2><<<1, 32, 0, stream>>>(run);
      break;
    case 4:
      MmaChainKernel<4><<<1, 32, 0, stream>>>(run);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

cudaError_t RunWgmmaChain(int tile_n, const ChainRun& run, cudaStream_t stream) {
  switch (tile_n * 8 + run.chains) {
    case 8 * 8 + 1:
      return Launch<8, 1, kWarpgroup>(1, run, stream);
    case 8 * 8 + 2:
      return Launch<8, 2, kWarpgroup>(1, run, stream);
    case 8 * 8 + 4:
      return Launch<8, 4, kWarpgroup>(1, run, stream);
    case 64 * 8 + 1:
      return Launch<64, 1, kWarpgroup>(1, run, stream);
    case 64 * 8 + 2:
      return Launch<64, 2, kWarpgroup>(1, run, stream);
    case 64 * 8 + 4:
      return Launch<64, 4, kWarpgroup>(1, run, stream);
    case 128 * 8 + 1:
      return Launch<128, 1, kWarpgroup>(1, run, stream);
    case 128 * 8 + 2:
      return Launch<128, 2, kWarpgroup>(1, run, stream);
    case 256 * 8 + 1:
      return Launch<256, 1, kWarpgroup>(1, run, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t RunWgmmaRate(int blocks, const ChainRun& run, cudaStream_t stream) {
  return Launch<256, 1, 2 * kWarpgroup>(blocks, run, stream);
}

std::vector<KernelLaunch> ChainLaunches() {
  return {{"MmaChainKernel<1>", 32, 0},
          {"MmaChainKernel<2>", 32, 0},
          {"MmaChainKernel<4>", 32, 0},
          {"WgmmaChainKernel<8, 1, 128>", 128, kSharedBytes<8, 128>},
          {"WgmmaChainKernel<8, 2, 128>", 128, kSharedBytes<8, 128>},
          {"WgmmaChainKernel<8, 4, 128>", 128, kSharedBytes<8, 128>},
          {"WgmmaChainKernel<64, 1, 128>", 128, kSharedBytes<64, 128>},
          {"WgmmaChainKernel<64, 2, 128>", 128, kSharedBytes<64, 128>},
          {"WgmmaChainKernel<64, 4, 128>", 128, kSharedBytes<64, 128>},
          {"WgmmaChainKernel<128, 1, 128>", 128, kSharedBytes<128, 128>},
          {"WgmmaChainKernel<128, 2, 128>", 128, kSharedBytes<128, 128>},
          {"WgmmaChainKernel<256, 1, 128>", 128, kSharedBytes<256, 128>},
          {"WgmmaChainKernel<256, 1, 256>", 256, kSharedBytes<256, 256>}};
}

}  // namespace baton
