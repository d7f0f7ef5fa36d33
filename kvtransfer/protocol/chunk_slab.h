// Bounce memory of the link thread, cut into slots of one chunk each, for chunks whose bytes are
// not contiguous in the pool. A posted operation owns its slot until it has completed, so the slab
// outlives the link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/check.h"
#include "kvtransfer/protocol/link.h"

namespace baton {

class ChunkSlab {
 public:
  // CHECKs that the memory is available; allocated once, registered at the link, slots aligned to
  // 4 KiB.
  ChunkSlab(int64_t slot_bytes, int32_t n_slots, Link* link)
      : slot_bytes_((slot_bytes + kAlign - 1) / kAlign * kAlign),
        memory_(static_cast<std::byte*>(std::aligned_alloc(
                    kAlign, static_cast<size_t>(slot_bytes_) * static_cast<size_t>(n_slots))),
                &std::free),
        n_slots_(n_slots) {
    BATON_CHECK(memory_ != nullptr);
    link->Register(memory_.get(), slot_bytes_ * n_slots);
    for (int32_t i = n_slots - 1; i >= 0; --i) free_.push_back(memory_.get() + i * slot_bytes_);
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
  const int64_t slot_bytes_;
  const std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  const int32_t n_slots_;
  std::vector<std::byte*> free_;
};

}  // namespace baton
