// Operations that the lanes of a warp do together; all 32 take part. Device code only.
#pragma once

namespace baton {

// Returns the value of the lane whose number differs in the bits of `bits`.
template <typename T>
__device__ __forceinline__ T FromLaneAcross(T value, int bits) {
  return __shfl_xor_sync(0xffffffffu, value, bits);
}

}  // namespace baton
