// The plain chain in the place of TileOrder (gemm_vector.h). For kernel units.
#pragma once

#include "bench/kernels/plain_chain_tables.h"
#include "engine/cpu/linear/gemm_vector.h"

namespace baton {
namespace {

struct PlainChain {
  template <class V, int kRows, int kVecs, class Weights>
  static void AddTile(const uint32_t* a, Weights b, int64_t groups, TileSums acc) {
    typename V::Vec sums[kRows][kVecs];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v)
        sums[r][v] = acc.start ? V::Zero() : V::LoadAcc(acc.sums + r * acc.stride + v * V::kLanes);
    }
    for (int64_t group = 0; group < groups; ++group) {
      AddChain<V>(a, b, group, 0, sums);
      b.AfterPass();
      AddChain<V>(a + V::kSteps * kRows, b, group, 1, sums);
      b.AfterPass();
      a += 2 * V::kSteps * kRows;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVecs; ++v)
        V::StoreAcc(acc.sums + r * acc.stride + v * V::kLanes, sums[r][v]);
    }
  }
};

}  // namespace
}  // namespace baton
