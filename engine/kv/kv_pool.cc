#include "engine/kv/kv_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const KvLayout& layout, int n_pages,
                                                       const NewArenaFn& new_arena) {
  BATON_CHECK(n_pages > 0 && layout.page_bytes > 0);
  int64_t bytes = 0;
  absl::Status status = absl::ResourceExhaustedError("more bytes than there are addresses");
  if (!__builtin_mul_overflow(layout.page_bytes, int64_t{n_pages}, &bytes)) {
    absl::StatusOr<std::unique_ptr<KvArena>> arena = new_arena(bytes);
    if (arena.ok()) return std::unique_ptr<KvPool>(new KvPool(layout, n_pages, *std::move(arena)));
    status = arena.status();
  }
  return absl::Status(
      status.code(),
      absl::StrFormat("KV pool: %s, for %d pages of %d bytes; give the pool fewer pages",
                      status.message(), n_pages, layout.page_bytes));
}

KvPool::KvPool(const KvLayout& layout, int n_pages, std::unique_ptr<KvArena> arena)
    : layout_(layout),
      n_pages_(n_pages),
      planes_apart_(layout.planes_apart()),
      n_windows_(layout.n_windows()),
      arena_(std::move(arena)),
      base_(arena_->base()) {
  // A page that is not free holds at least the frames of its layers without a window.
  const int n_frames = planes_apart_ ? n_pages * layout.n_layers() : 0;
  const auto n_ids =
      static_cast<size_t>(planes_apart_ ? n_frames / (layout.n_layers() - n_windows_) : n_pages);
  holders_.resize(n_ids);
  trims_.resize(n_ids);
  is_cached_.resize(n_ids);
  spare_at_.resize(n_ids);
  // Reversed, so that low ids are taken first.
  free_.reserve(n_ids);
  for (auto id = static_cast<int32_t>(n_ids); id-- > 0;) free_.push_back(id);
  if (planes_apart_) frames_.resize(n_ids * static_cast<size_t>(layout.n_layers()), -1);
  free_frames_.reserve(static_cast<size_t>(n_frames));
  for (int32_t frame = n_frames; frame-- > 0;) free_frames_.push_back(frame);
}

KvPool::~KvPool() { BATON_CHECK(n_held_ == 0); }

int KvPool::free() const {
  if (!planes_apart_) return static_cast<int>(free_.size() + spare_.size());
  return (static_cast<int>(free_frames_.size()) + n_spare_frames_) / layout_.n_layers();
}

bool KvPool::is_whole(int32_t id) const {
  if (!planes_apart_) return true;
  const auto first = frames_.begin() + int64_t{id} * layout_.n_layers();
  return std::find(first, first + layout_.n_layers(), -1) == first + layout_.n_layers();
}

// --- taking

bool KvPool::Take(int n, std::vector<int32_t>* out) {
  BATON_CHECK(n >= 0);
  if (n > free()) return false;
  for (int i = 0; i < n; ++i) {
    const int32_t id = TakeOne();
    BATON_CHECK(holders_[id] == 0);
    holders_[id] = 1;
    ++n_holders_;
    ++n_held_;
    out->push_back(id);
  }
  return true;
}

int32_t KvPool::TakeOne() {
  while (planes_apart_ ? free_frames_.size() < layout_.planes.size() : free_.empty()) Evict();
  const int32_t id = free_.back();
  free_.pop_back();
  if (!planes_apart_) {
    arena_->Zero(base_ + id * layout_.page_bytes, layout_.page_bytes);
    return id;
  }
  for (int layer = 0; layer < layout_.n_layers(); ++layer) {
    frames_[int64_t{id} * layout_.n_layers() + layer] = free_frames_.back();
    free_frames_.pop_back();
    arena_->Zero(plane(id, layer), layout_.frame_bytes());
  }
  return id;
}

// Evicts the first spare page: its unneeded bytes are lost.
void KvPool::Evict() {
  const int32_t id = spare_.front();
  LeaveSpare(id);
  is_cached_[id] = false;
  on_evict(id);
  FreeUnneeded(id);
}

// --- holders

void KvPool::Give(std::span<const int32_t> entries) {
  for (size_t i = entries.size(); i-- > 0;) Release(entries[i]);
}

void KvPool::Release(int32_t entry) {
  if (entry == kNoPage) return;
  const int32_t id = PageOf(entry);
  BATON_CHECK(id >= 0 && id < n_ids());
  BATON_CHECK(IsWhole(entry) ? NeedsAll(id) : trims_[id] > 0);
  LeaveSpare(id);
  if (!IsWhole(entry)) --trims_[id];
  --n_holders_;
  if (--holders_[id] == 0) --n_held_;
  Settle(id);
}

void KvPool::Hold(std::span<const int32_t> pages) {
  for (const int32_t id : pages) {
    BATON_CHECK(id >= 0 && id < n_ids());
    BATON_CHECK(NeedsAll(id) || is_cached_[id]);
    LeaveSpare(id);
    if (holders_[id]++ == 0) ++n_held_;
    ++n_holders_;
  }
}

void KvPool::Trim(std::span<int32_t> entries) {
  BATON_CHECK(layout_.window > 0);
  for (size_t i = entries.size(); i-- > 0;) {
    int32_t& entry = entries[i];
    if (!IsWhole(entry)) continue;
    ++n_trimmed_;
    if (!planes_apart_) {
      Release(entry);
      entry = kNoPage;
      continue;
    }
    BATON_CHECK(NeedsAll(entry));
    ++trims_[entry];
    Settle(entry);
    entry = TrimmedEntry(entry);
  }
}

void KvPool::Cache(int32_t page) {
  BATON_CHECK(NeedsAll(page) && !is_cached_[page] && on_evict != nullptr);
  is_cached_[page] = true;
}

// --- unneeded planes

int KvPool::UnneededFrames(int32_t id) const {
  if (!planes_apart_ || NeedsAll(id)) return 0;
  return holders_[id] == 0 ? layout_.n_layers() : n_windows_;
}

// Called before holders or trims of the page change.
void KvPool::LeaveSpare(int32_t id) {
  if (!is_cached_[id] || NeedsAll(id)) return;
  spare_.erase(spare_at_[id]);
  n_spare_frames_ -= UnneededFrames(id);
}

// Called after holders or trims have changed: unneeded frames become spare if the page is cached,
// else free.
void KvPool::Settle(int32_t id) {
  if (NeedsAll(id)) return;
  if (!is_cached_[id]) return FreeUnneeded(id);
  spare_at_[id] = spare_.insert(spare_.end(), id);
  n_spare_frames_ += UnneededFrames(id);
}

void KvPool::FreeUnneeded(int32_t id) {
  for (int layer = 0; planes_apart_ && layer < layout_.n_layers(); ++layer) {
    int32_t& frame = frames_[int64_t{id} * layout_.n_layers() + layer];
    if (frame < 0 || (holders_[id] > 0 && !layout_.planes[layer].has_window)) continue;
    free_frames_.push_back(frame);
    frame = -1;
  }
  if (holders_[id] == 0) free_.push_back(id);
}

int CountPages(std::span<const int32_t> entries) {
  return static_cast<int>(entries.size() - std::count(entries.begin(), entries.end(), kNoPage));
}

void CopyPage(const KvPool& pool, int32_t from, int32_t to) {
  BATON_CHECK(pool.is_held(from) && pool.is_held(to) && pool.is_whole(from) && pool.is_whole(to));
  for (int layer = 0; layer < pool.layout().n_layers(); ++layer)
    pool.arena_->Copy(pool.plane(to, layer), pool.plane(from, layer),
                      pool.layout().planes[layer].bytes);
}

}  // namespace baton
