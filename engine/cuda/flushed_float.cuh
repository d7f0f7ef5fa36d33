// fp32 arithmetic that takes denormals for zeros and writes zeros in their place, as the CPU's
// control word has it (docs/NUMERICS.md N10); rounded to nearest even, as PTX. Device code only.
#pragma once

namespace baton {

__device__ __forceinline__ float FlushedAdd(float a, float b) {
  float sum;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
}
__device__ __forceinline__ float FlushedSub(float a, float b) {
  float difference;
  asm("sub.rn.ftz.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
  return difference;
}
__device__ __forceinline__ float FlushedMul(float a, float b) {
  float product;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}
__device__ __forceinline__ float FlushedFma(float a, float b, float c) {
  float sum;
  asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
  return sum;
}
__device__ __forceinline__ float FlushedDiv(float a, float b) {
  float quotient;
  asm("div.rn.ftz.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}
__device__ __forceinline__ float FlushedSqrt(float a) {
  float root;
  asm("sqrt.rn.ftz.f32 %0, %1;" : "=f"(root) : "f"(a));
  return root;
}

}  // namespace baton
