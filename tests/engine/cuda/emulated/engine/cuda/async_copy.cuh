// Stands in for engine/cuda/async_copy.cuh.
#pragma once

#include "tests/engine/cuda/emulated/engine/cuda/device_words.h"

namespace baton {

inline uint32_t SharedBase() { return EmulatedBlock::Now().SharedBase(); }
inline void CopyPiece(uint32_t target, const uint16_t* source, bool is_there) {
  EmulatedBlock::Now().StartCopy(target, source, is_there);
}
inline void CommitCopies() { EmulatedBlock::Now().CommitCopies(); }
template <int kGroups>
void WaitForCopies() {
  EmulatedBlock::Now().WaitForCopies(kGroups);
}
inline uint32_t LoadShared(uint32_t address) { return EmulatedBlock::Now().LoadShared(address); }
inline void ShowToWgmma() { EmulatedBlock::Now().ShowToWgmma(); }

}  // namespace baton
