// Bounce memory of the link thread, cut into slots of one chunk each, for chunks that the link
// cannot read or write in the pool. Operations of copier and link own their slot until they have
// ended, so the memory, which is the copier's, outlives the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvtransfer/protocol/cell_copier.h"

namespace baton {

class ChunkSlab {
 public:
  // Memory of the copier, allocated once and registered at the link; slots aligned to 4 KiB.
  ChunkSlab(int64_t slot_bytes, int32_t n_slots, CellCopier* copier, Link* link)
      : n_slots_(n_slots) {
    slot_bytes = (slot_bytes + kAlign - 1) / kAlign * kAlign;
    std::byte* const memory = copier->NewSlots(slot_bytes * n_slots);
    link->Register(memory, slot_bytes * n_slots);
    for (int32_t i = n_slots - 1; i >= 0; --i) free_.push_back(memory + i * slot_bytes);
  }

  // nullptr: all slots are in use.
  std::byte* Take() {
    if (free_.empty()) return nullptr;
    std::byte* slot = free_.back();  // the slot used last: its lines may still be in the cache
    free_.pop_back();
    return slot;
  }
  void Return(std::byte* slot) { free_.push_back(slot); }  // a slot of Take
  bool empty() const { return free_.empty(); }
  int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t n_slots() const { return n_slots_; }

 private:
  static constexpr int64_t kAlign = 4096;
  const int32_t n_slots_;
  std::vector<std::byte*> free_;
};

}  // namespace baton
