// Stands in for engine/cuda/tma.cuh.
#pragma once

#include "engine/cuda/dependent_launch.cuh"
#include "engine/cuda/tensor_map.h"
#include "tests/engine/cuda/emulated/engine/cuda/async_copy.cuh"

namespace baton {

inline void InitBarrier(uint32_t barrier, int count) {
  EmulatedBlock::Now().InitBarrier(barrier, count);
}
inline void ShowBarriers() {}
inline void Arrive(uint32_t barrier) { EmulatedBlock::Now().ArriveExpecting(barrier, 0); }
inline void ArriveAsWarp(uint32_t barrier) { EmulatedBlock::Now().ArriveAsWarp(barrier); }
inline void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  EmulatedBlock::Now().ArriveExpecting(barrier, bytes);
}
inline void WaitForPhase(uint32_t barrier, uint32_t parity) {
  EmulatedBlock::Now().WaitForPhase(barrier, parity);
}
inline void CopyBox(uint32_t target, const TensorMap& map, int x, int y, uint32_t barrier) {
  EmulatedBlock::Now().StartBox(target, map, x, y, barrier);
}
inline void CopyColumnBox(uint32_t target, const TensorMap& map, int column, int y,
                          uint32_t barrier) {
  EmulatedBlock::Now().StartBox(target, map, column * 64, y, barrier);
}
inline void PrefetchColumnBox(const TensorMap&, int, int) {}
inline void PrefetchMap(const TensorMap&) {}
template <int kRegisters>
void GiveRegisters() {}
template <int kRegisters>
void TakeRegisters() {}

}  // namespace baton
