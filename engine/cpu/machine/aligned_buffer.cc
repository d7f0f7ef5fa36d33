#include "engine/cpu/machine/aligned_buffer.h"

#include <sys/mman.h>

#include "common/check.h"

namespace baton {

void* AlignedBuffer::Reserve(size_t bytes) {
  if (bytes <= capacity_) return memory_.get();
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  capacity_ = (bytes + alignment - 1) / alignment * alignment;
  memory_.reset();  // first, so that old and new memory never exist together
  memory_.reset(std::aligned_alloc(alignment, capacity_));
  BATON_CHECK(memory_ != nullptr);
  if (alignment == kHugePage) madvise(memory_.get(), capacity_, MADV_HUGEPAGE);  // best effort
  return memory_.get();
}

}  // namespace baton
