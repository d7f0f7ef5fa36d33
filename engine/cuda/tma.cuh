// The tensor memory accelerator of Hopper as PTX: copies of boxes of a matrix into shared memory
// that one thread starts, barriers that count their bytes, and registers that go from one
// warpgroup to another. PTX ISA: "cp.async.bulk.tensor", "mbarrier", "setmaxnreg". Device code
// only.
#pragma once

#include <cstdint>

#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/dependent_launch.cuh"
#include "engine/cuda/tensor_map.h"

namespace baton {

// ---- barriers: 8 bytes of shared memory each; their phases have parity 0, 1, 0, ... ----

// Holds phases that end with `count` arrivals and all bytes that were announced.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Shows new barriers to copies; a barrier of the block must follow.
__device__ __forceinline__ void ShowBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives once for a warp, when all its lanes have come; they call together.
__device__ __forceinline__ void ArriveAsWarp(uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) Arrive(barrier);
}
// Arrives and announces `bytes` that copies will bring in this phase.
__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ bool HasPhaseEnded(uint32_t barrier, uint32_t parity) {
  uint32_t has_ended;
  asm volatile(
      "{\n.reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n}"
      : "=r"(has_ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return has_ended != 0;
}
// Waits for the end of the phase of that parity: returns at once if the phase under way is of the
// other one. Ends the kernel with an error after 2^33 cycles, which only a fault can take.
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, uint32_t parity) {
  if (HasPhaseEnded(barrier, parity)) return;
  const long long begin = clock64();
  while (!HasPhaseEnded(barrier, parity))
    if (clock64() - begin > 1ll << 33) __trap();
}

// ---- copies ----

// Starts to copy the box at column `x` and row `y`; zeros stand for what is beyond the matrix.
// `barrier` counts all bytes of the box.
__device__ __forceinline__ void CopyBox(uint32_t target, const TensorMap& map, int x, int y,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(target),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// Starts to copy a box of a matrix in columns of 64 (EncodeBoxes).
__device__ __forceinline__ void CopyColumnBox(uint32_t target, const TensorMap& map, int column,
                                              int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(target),
      "l"(&map), "r"(0), "r"(y), "r"(column), "r"(barrier)
      : "memory");
}
// Asks the level 2 cache for such a box.
__device__ __forceinline__ void PrefetchColumnBox(const TensorMap& map, int column, int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map),
               "r"(0), "r"(y), "r"(column)
               : "memory");
}
__device__ __forceinline__ void PrefetchMap(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- registers: all threads of a warpgroup call these ----

template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace baton
