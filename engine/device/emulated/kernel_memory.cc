#include "engine/device/emulated/kernel_memory.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace baton {

KernelMemory::KernelMemory(const Operation& operation, int stream, const EmulatedMemory& memory,
                           HappensBefore& order)
    : operation_(operation),
      memory_(memory),
      order_(order),
      actor_{stream, operation.clock, operation.name} {}

const std::byte* KernelMemory::Reads(const std::byte* at, int64_t bytes) {
  return Access(at, bytes, /*is_write=*/false);
}

std::byte* KernelMemory::Writes(std::byte* at, int64_t bytes) {
  return Access(at, bytes, /*is_write=*/true);
}

std::byte* KernelMemory::Access(const std::byte* at, int64_t bytes, bool is_write) {
  if (std::byte* const there = memory_.Bytes(at, bytes); there != nullptr) {
    order_.Access(actor_, at, bytes, is_write);
    if (operation_.captured_allocations &&
        memory_.Allocation(at, bytes) > *operation_.captured_allocations) {
      order_.Report(absl::StrFormat(
          "%s is of a graph that was captured before the memory it %s was allocated",
          operation_.name, is_write ? "writes" : "reads"));
    }
    return there;
  }
  if (error_.empty()) {
    error_ = absl::StrFormat("%s %s %d bytes at %p, which is no memory of the device",
                             operation_.name, is_write ? "writes" : "reads", bytes, at);
    order_.Report(error_);
  }
  std::vector<std::byte>& nowhere = nowhere_.emplace_back(std::max<int64_t>(bytes, 1));
  Poison(nowhere.data(), bytes);
  return nowhere.data();
}

}  // namespace baton
