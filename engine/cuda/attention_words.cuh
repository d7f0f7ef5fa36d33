// Instructions of the attention kernels beside those of async_copy.cuh and mma.cuh, as PTX and
// intrinsics. Device code only; tests have a stand-in for an emulated block.
#pragma once

#include <cstdint>

namespace baton {

// Reads four matrices of 8 rows of 16 bytes; lane l gives the address of row l % 8 of matrix l / 8.
// Register i of a lane gets two neighbouring values of matrix i: row lane / 4, columns 2 * (lane %
// 4) and one more.
__device__ __forceinline__ void LoadMatrices(uint32_t (&values)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address));
}
// Loads transposed matrices in the same way: rows 2 * (lane % 4) and one more, column lane / 4.
__device__ __forceinline__ void LoadTransposed(uint32_t (&values)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "r"(address));
}

__device__ __forceinline__ void StoreShared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void StoreSharedFloat(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ __forceinline__ float LoadSharedFloat(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
  return value;
}
// Four at an address that 16 divides.
__device__ __forceinline__ void StoreSharedFloats(uint32_t address, const float (&values)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(values[0]),
               "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}
__device__ __forceinline__ void LoadSharedFloats(float (&values)[4], uint32_t address) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "r"(address)
               : "memory");
}
// Adds to a number in shared memory; returns the one before.
__device__ __forceinline__ int AddShared(uint32_t address, int value) {
  int before;
  asm volatile("atom.shared.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(address), "r"(value)
               : "memory");
  return before;
}

// 2^x; exact for 0 and negative infinity (check S1.h).
__device__ __forceinline__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float Greater(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float Quotient(float a, float b) { return __fdiv_rn(a, b); }
// Returns a * b + c, rounded once.
__device__ __forceinline__ float Fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// Two bf16, rounded to nearest even, `low` in the lower half.
__device__ __forceinline__ uint32_t RoundedPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// All lanes of a warp call these together.
__device__ __forceinline__ float ShuffleXor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
__device__ __forceinline__ int ShuffleFrom(int value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// Makes sure that what a thread has written before is seen by whoever sees what it writes later.
__device__ __forceinline__ void FenceMemory() { __threadfence(); }
__device__ __forceinline__ int AddGlobal(int* number, int value) {
  return atomicAdd(number, value);
}
// Reads what another block has written.
__device__ __forceinline__ float LoadOfOthers(const float* value) { return __ldcg(value); }
// Four at an address that 16 divides.
__device__ __forceinline__ void LoadOfOthers(float (&values)[4], const float* at) {
  const float4 four = __ldcg(reinterpret_cast<const float4*>(at));
  values[0] = four.x;
  values[1] = four.y;
  values[2] = four.z;
  values[3] = four.w;
}

}  // namespace baton
