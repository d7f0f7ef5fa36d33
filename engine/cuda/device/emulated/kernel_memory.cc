#include "engine/cuda/device/emulated/kernel_memory.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr int64_t kMaxNowhere = int64_t{1} << 30;  // poisoned counts ask for more

}  // namespace

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
  const char* const verb = is_write ? "writes" : "reads";
  std::byte* const there = Bytes(at, bytes, verb);
  const uint64_t allocation = memory_.Allocation(at, bytes);
  if (allocation == 0) return there;
  order_.Access(actor_, at, bytes, is_write);
  if (operation_.captured_allocations && allocation > *operation_.captured_allocations) {
    order_.Report(
        absl::StrFormat("%s is of a graph that was captured before the memory it %s was allocated",
                        operation_.name, verb));
  }
  return there;
}

std::byte* KernelMemory::Bytes(const std::byte* at, int64_t bytes, const char* verb) {
  if (std::byte* const there = memory_.Bytes(at, bytes); there != nullptr) return there;
  Fail(absl::StrFormat("%s %d bytes at %p, which is no memory of the device", verb, bytes, at));
  std::vector<std::byte>& nowhere =
      nowhere_.emplace_back(static_cast<size_t>(std::clamp<int64_t>(bytes, 1, kMaxNowhere)));
  Poison(nowhere.data(), static_cast<int64_t>(nowhere.size()));
  return nowhere.data();
}

void KernelMemory::Fail(const std::string& why) {
  if (!error_.empty()) return;
  error_ = operation_.name + " " + why;
  order_.Report(error_);
}

}  // namespace baton
