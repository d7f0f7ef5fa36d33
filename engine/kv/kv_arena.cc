#include "engine/kv/kv_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kSmallPage = 4 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<KvArena>> KvArena::Map(int64_t wanted) {
  const int64_t grain = wanted < kHugePage ? kSmallPage : kHugePage;
  int64_t bytes = 0;
  void* base = MAP_FAILED;
  if (!__builtin_add_overflow(wanted, grain - 1, &bytes)) {
    bytes = bytes / grain * grain;
    base = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (base == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrFormat("no memory for %d bytes", wanted));
  // Both calls are best effort: without huge pages, or on a kernel that cannot pre-fault, the pool
  // is only slower at first touch.
  ::madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  if (::madvise(base, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) != 0 && errno == ENOMEM) {
    ::munmap(base, static_cast<size_t>(bytes));
    return absl::ResourceExhaustedError(absl::StrFormat("the system has no %d bytes", bytes));
  }
#endif
  return std::unique_ptr<KvArena>(new KvArena(static_cast<std::byte*>(base), bytes));
}

KvArena::KvArena(std::unique_ptr<KvArena> mapped)
    : base_(mapped->base_), bytes_(std::exchange(mapped->bytes_, 0)) {}

KvArena::~KvArena() {
  if (bytes_ > 0) ::munmap(base_, static_cast<size_t>(bytes_));
}

void KvArena::Zero(std::byte* at, int64_t n_bytes) {
  std::memset(at, 0, static_cast<size_t>(n_bytes));
}

void KvArena::Copy(std::byte* to, const std::byte* from, int64_t n_bytes) {
  std::memcpy(to, from, static_cast<size_t>(n_bytes));
}

}  // namespace baton
