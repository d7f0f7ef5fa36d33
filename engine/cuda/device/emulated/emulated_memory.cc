#include "engine/cuda/device/emulated/emulated_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kGrain = 512;  // of addresses, as on GPUs

int64_t RoundedUp(int64_t bytes) { return (bytes + kGrain - 1) / kGrain * kGrain; }

std::byte* MapOrDie(int64_t bytes, int protection) {
  void* const at = ::mmap(nullptr, static_cast<size_t>(bytes), protection,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BATON_CHECK(at != MAP_FAILED);
  return static_cast<std::byte*>(at);
}

}  // namespace

void Poison(std::byte* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) at[i] = std::byte{i % 2 == 0 ? uint8_t{0xc1} : uint8_t{0x7f}};
}

EmulatedMemory::EmulatedMemory(int64_t capacity, uint64_t failing, HappensBefore& order)
    : capacity_(RoundedUp(capacity)), order_(order), failing_(failing) {
  reserved_ = MapOrDie(capacity_, PROT_NONE);
  bytes_ = MapOrDie(capacity_, PROT_READ | PROT_WRITE);
}

EmulatedMemory::~EmulatedMemory() {
  for (const auto& [at, block] : blocks_)
    if (!IsDevice(at)) std::free(at);
  ::munmap(reserved_, static_cast<size_t>(capacity_));
  ::munmap(bytes_, static_cast<size_t>(capacity_));
}

absl::Status EmulatedMemory::Count(int64_t bytes, std::string_view what) {
  BATON_CHECK(bytes > 0);
  if (++n_allocations_ != failing_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("device: no memory for %s of %d bytes", what, bytes));
}

absl::StatusOr<std::byte*> EmulatedMemory::Allocate(int64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Count(bytes, what));
  // The first gap that is wide enough, so that addresses are used again.
  std::byte* at = reserved_;
  for (const auto& [begin, block] : blocks_) {
    if (!IsDevice(begin)) continue;
    if (begin - at >= bytes) break;
    at = begin + RoundedUp(block.bytes);
  }
  if (reserved_ + capacity_ - at < bytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("device: no memory for %s of %d bytes, %d are free; make it smaller", what,
                        bytes, capacity_ - used_));
  }
  used_ += RoundedUp(bytes);
  blocks_[at] = {bytes, n_allocations_, std::string(what)};
  Poison(bytes_ + (at - reserved_), bytes);
  order_.Own(at, bytes, what);
  return at;
}

absl::StatusOr<std::byte*> EmulatedMemory::AllocatePinned(int64_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Count(bytes, what));
  auto* const at =
      static_cast<std::byte*>(std::aligned_alloc(kGrain, static_cast<size_t>(RoundedUp(bytes))));
  BATON_CHECK(at != nullptr);
  blocks_[at] = {bytes, n_allocations_, std::string(what)};
  Poison(at, bytes);
  order_.Own(at, bytes, what);
  return at;
}

void EmulatedMemory::Free(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(memory);
  BATON_CHECK(block != blocks_.end());
  order_.HostAccess(memory, block->second.bytes, /*is_write=*/true);
  if (IsDevice(memory)) {
    used_ -= RoundedUp(block->second.bytes);
  } else {
    std::free(memory);
  }
  blocks_.erase(block);
}

DeviceMemory EmulatedMemory::memory() const {
  const std::lock_guard lock(mutex_);
  return {.total_bytes = capacity_, .free_bytes = capacity_ - used_};
}

std::optional<EmulatedMemory::Block> EmulatedMemory::Find(const std::byte* at,
                                                          int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(const_cast<std::byte*>(at));
  if (block == blocks_.begin()) return std::nullopt;
  --block;
  if (bytes < 0 || at + bytes > block->first + block->second.bytes) return std::nullopt;
  return block->second;
}

std::byte* EmulatedMemory::Bytes(const std::byte* at, int64_t bytes) const {
  if (!IsDevice(at) || !Find(at, bytes)) return nullptr;
  return bytes_ + (at - reserved_);
}

uint64_t EmulatedMemory::Allocation(const std::byte* at, int64_t bytes) const {
  const std::optional<Block> block = Find(at, bytes);
  return block ? block->allocation : 0;
}

int64_t EmulatedMemory::SizeOf(std::byte* memory) const {
  const std::lock_guard lock(mutex_);
  return blocks_.at(memory).bytes;
}

uint64_t EmulatedMemory::n_allocations() const {
  const std::lock_guard lock(mutex_);
  return n_allocations_;
}

}  // namespace baton
