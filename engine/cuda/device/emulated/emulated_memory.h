// Memory of an emulated device. Its addresses lie in a range that nobody may touch: a host that
// dereferences one dies. Operations get at the bytes, which lie elsewhere, by Bytes. Pinned memory
// is memory of the host that is known here. New memory is full of poison. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "engine/cuda/device/device.h"
#include "engine/cuda/device/emulated/happens_before.h"

namespace baton {

// Writes what nobody computes: NaN as bf16 and as fp32, an id out of any range as an integer.
void Poison(std::byte* at, int64_t bytes);

class EmulatedMemory {
 public:
  // failing: this allocation fails, counted from 1; 0: none does.
  EmulatedMemory(int64_t capacity, uint64_t failing, HappensBefore& order);
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  absl::StatusOr<std::byte*> Allocate(int64_t bytes, std::string_view what);
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes, std::string_view what);
  void Free(std::byte* memory);  // counts as a write by the calling thread
  DeviceMemory memory() const;   // of the device

  bool IsDevice(const std::byte* at) const { return at >= reserved_ && at < reserved_ + capacity_; }
  bool IsPinned(const std::byte* at, int64_t bytes) const {
    return !IsDevice(at) && Find(at, bytes).has_value();
  }
  // The bytes behind addresses of one allocation; null: there is no such memory.
  std::byte* Bytes(const std::byte* at, int64_t bytes) const;
  // The allocation that has these bytes: numbers rise. 0: none.
  uint64_t Allocation(const std::byte* at, int64_t bytes) const;
  uint64_t n_allocations() const;
  int64_t SizeOf(std::byte* memory) const;  // that Allocate or AllocatePinned returned

 private:
  struct Block {
    int64_t bytes = 0;
    uint64_t allocation = 0;
    std::string what;
  };
  absl::Status Count(int64_t bytes, std::string_view what);
  std::optional<Block> Find(const std::byte* at, int64_t bytes) const;

  const int64_t capacity_;
  HappensBefore& order_;
  const uint64_t failing_;
  std::byte* reserved_ = nullptr;  // addresses, without access
  std::byte* bytes_ = nullptr;     // what they stand for
  mutable std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;  // of both kinds
  int64_t used_ = 0;                    // of the device
  uint64_t n_allocations_ = 0;
};

}  // namespace baton
