// Memory for what goes between host and device, taken for one submission and given back when it is
// reached. Grows to what is under way at once; never shrinks before its end. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/device/device.h"

namespace baton {

class SlotPool {
 public:
  enum class Kind { kPinned, kDevice };
  struct Slot {
    std::byte* at = nullptr;
    int64_t bytes = 0;
  };

  // `what` names it in errors.
  SlotPool(Device& device, Kind kind, std::string what)
      : device_(device), kind_(kind), what_(std::move(what)) {}
  ~SlotPool() {
    for (const std::unique_ptr<Slot>& slot : slots_) device_.Free(slot->at);
  }
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // ResourceExhausted: the device or the host has no more memory.
  absl::StatusOr<Slot*> Take(int64_t bytes) {
    for (size_t i = free_.size(); i-- > 0;) {
      Slot* const slot = free_[i];
      if (slot->bytes < bytes) continue;
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      return slot;
    }
    auto slot = std::make_unique<Slot>();
    slot->bytes = kSmallest;
    while (slot->bytes < bytes) slot->bytes *= 2;
    ASSIGN_OR_RETURN(slot->at, kind_ == Kind::kPinned ? device_.AllocatePinned(slot->bytes, what_)
                                                      : device_.Allocate(slot->bytes, what_));
    slots_.push_back(std::move(slot));
    return slots_.back().get();
  }
  void Give(Slot* slot) { free_.push_back(slot); }

 private:
  static constexpr int64_t kSmallest = 4096;

  Device& device_;
  const Kind kind_;
  const std::string what_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
};

}  // namespace baton
