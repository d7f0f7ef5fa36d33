#include "engine/cpu/activations.h"

#include <sys/mman.h>

#include "engine/cpu/linear/linear.h"

namespace baton {
namespace {

constexpr int64_t kPageBytes = 4096;

// Stride padded to whole 32-k groups; rows 4 KiB apart would compete for one cache set.
int64_t StrideFor(int64_t width) {
  const int64_t stride = RoundUp(width, 32);
  return stride % 2048 == 0 ? stride + 32 : stride;
}

}  // namespace

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, static_cast<size_t>(bytes_));
}

void Arena::Ask(Activations& to, int64_t rows, int64_t width) {
  to.stride = StrideFor(width);
  Ask(to.data, rows * to.stride);
}

int64_t Arena::Place(int64_t bytes) {
  const int64_t offset = bytes_;
  bytes_ += RoundUp(bytes, kPageBytes);
  return offset;
}

bool Arena::Map() {
  void* base = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(base);
  for (const auto& set : set_) set(base_);
  set_.clear();
  return true;
}

}  // namespace baton
