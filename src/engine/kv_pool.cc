#include "engine/kv_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kSmallPage = 4 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const KvLayout& layout, int n_pages) {
  CHECK(n_pages > 0 && layout.page_bytes > 0);
  int64_t bytes = 0;
  bool overflow = __builtin_mul_overflow(layout.page_bytes, int64_t{n_pages}, &bytes);
  const int64_t grain = bytes < kHugePage ? kSmallPage : kHugePage;
  overflow = overflow || __builtin_add_overflow(bytes, grain - 1, &bytes);
  bytes = bytes / grain * grain;
  void* base = MAP_FAILED;
  if (!overflow) {
    base = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("KV pool: no memory for %d pages of %d bytes; give the pool fewer pages",
                        n_pages, layout.page_bytes));
  }
  // Both are wishes: without huge pages, or on a kernel that cannot pre-fault, the pool is only
  // slower at first touch.
  ::madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
  if (::madvise(base, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) != 0 && errno == ENOMEM) {
    ::munmap(base, static_cast<size_t>(bytes));
    return absl::ResourceExhaustedError(absl::StrFormat(
        "KV pool: the system has no %d bytes for %d pages; give the pool fewer pages", bytes,
        n_pages));
  }
#endif
  return std::unique_ptr<KvPool>(new KvPool(layout, n_pages, static_cast<std::byte*>(base), bytes));
}

KvPool::KvPool(const KvLayout& layout, int n_pages, std::byte* base, int64_t bytes)
    : layout_(layout),
      n_pages_(n_pages),
      base_(base),
      arena_bytes_(bytes),
      holders_(n_pages),
      is_cached_(n_pages),
      idle_at_(n_pages) {
  free_.reserve(n_pages);
  for (int32_t id = n_pages; id-- > 0;) free_.push_back(id);  // low ids are taken first
}

KvPool::~KvPool() {
  CHECK(held() == 0);
  ::munmap(base_, static_cast<size_t>(arena_bytes_));
}

int32_t KvPool::TakeOne() {
  if (!free_.empty()) {
    const int32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  const int32_t id = idle_.front();
  idle_.pop_front();
  is_cached_[id] = false;
  on_evict(id);
  return id;
}

bool KvPool::Take(int n, std::vector<int32_t>* out) {
  CHECK(n >= 0);
  if (n > free()) return false;
  for (int i = 0; i < n; ++i) {
    const int32_t id = TakeOne();
    CHECK(holders_[id] == 0);
    holders_[id] = 1;
    ++n_holders_;
    std::memset(page(id), 0, static_cast<size_t>(layout_.page_bytes));
    out->push_back(id);
  }
  return true;
}

void KvPool::Give(std::span<const int32_t> pages) {
  for (size_t i = pages.size(); i-- > 0;) {
    const int32_t id = pages[i];
    CHECK(id >= 0 && id < n_pages_);
    CHECK(holders_[id] > 0);
    --n_holders_;
    if (--holders_[id] > 0) continue;
    if (is_cached_[id])
      idle_at_[id] = idle_.insert(idle_.end(), id);
    else
      free_.push_back(id);
  }
}

void KvPool::Hold(std::span<const int32_t> pages) {
  for (const int32_t id : pages) {
    CHECK(id >= 0 && id < n_pages_);
    CHECK(holders_[id] > 0 || is_cached_[id]);
    if (holders_[id]++ == 0) idle_.erase(idle_at_[id]);
    ++n_holders_;
  }
}

void KvPool::Cache(int32_t page) {
  CHECK(holders_[page] > 0 && !is_cached_[page] && on_evict != nullptr);
  is_cached_[page] = true;
}

}  // namespace baton
