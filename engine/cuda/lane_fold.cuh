// The sum of sixteen virtual lanes (docs/NUMERICS.md N4), a thread each. Device code only.
#pragma once

#include "engine/cuda/flushed_float.cuh"
#include "engine/cuda/warp.cuh"

namespace baton {
namespace {

// Sums the sixteen virtual lanes that a half warp has, in the order 8, 4, 2, 1. Every thread gets
// the sum of its half.
__device__ __forceinline__ float FoldLanes(float lane) {
#pragma unroll
  for (int width = 8; width > 0; width /= 2) lane = FlushedAdd(lane, FromLaneAcross(lane, width));
  return lane;
}

}  // namespace
}  // namespace baton
