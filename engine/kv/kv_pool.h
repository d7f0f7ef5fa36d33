// Counts the KV pages of one worker: who holds them, which are free or cached. The bytes are in its
// KvArena, sizes in KvLayout. Engine thread only. The link thread gets page ids by value, and once
// the addresses of the arena and of the frames; the frames of a page it works on do not change
// meanwhile.
//
// A page is free, or held by one or more holders (sequences, or the lender that lends pages to the
// link thread). Several holders may share a page only when its writing is over. The bytes of a page
// are zeroed before a new owner may see them (docs/NUMERICS.md N9: unwritten slots must be finite).
//
// A cached page keeps its bytes when its last holder gives it back. Such a page counts as free, but
// is taken only when no other page is left, least recently returned first, and can be held again
// until then.
//
// Trim gives back pages that fell out of the window of a sequence. If all layers have a window, the
// whole page is given back. If only some layers have one, the page stays held, and its planes of
// layers with a window become free when the last holder has trimmed the page (for a cached page:
// when no other free page is left; the page is then no longer cached). The arena is then one row of
// frames, each of which takes any plane of any page, so no memory is reserved for either kind of
// layer. There are then more ids than pages that fit at once, and free() counts the pages that can
// be taken with all their planes.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine/kv/kv_arena.h"
#include "engine/kv/kv_layout.h"
#include "engine/kv/kv_pages.h"

namespace baton {

// An entry of a sequence's page table is one of: the id of a page with all its planes; after Trim,
// TrimmedEntry of a page without its planes of layers with a window; or kNoPage.
inline constexpr int32_t kNoPage = -1;
constexpr int32_t TrimmedEntry(int32_t page) { return -2 - page; }
constexpr bool IsWhole(int32_t entry) { return entry >= 0; }
constexpr int32_t PageOf(int32_t entry) { return entry >= kNoPage ? entry : -2 - entry; }
// Number of pages that a table with these entries holds.
int CountPages(std::span<const int32_t> entries);

class KvPool {
 public:
  using NewArenaFn = std::function<absl::StatusOr<std::unique_ptr<KvArena>>(int64_t bytes)>;
  // A pool of n_pages in an arena that new_arena makes. ResourceExhausted: not enough memory; the
  // error names the bytes and says to ask for fewer pages. CHECKs n_pages > 0.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const KvLayout& layout, int n_pages,
                                                        const NewArenaFn& new_arena = KvArena::Map);
  ~KvPool();  // CHECKs that every page came back
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  std::byte* base() const { return base_; }  // total() * page_bytes
  // Where the planes of pages that are held lie.
  KvPages pages() const { return {&layout_, base_, n_pages_, n_ids(), frames()}; }
  std::byte* plane(int32_t page, int layer) const { return pages().plane(page, layer); }
  // (ids, layers) frame of each plane, -1: none. Null if planes do not lie apart.
  const int32_t* frames() const { return frames_.empty() ? nullptr : frames_.data(); }

  int total() const { return n_pages_; }  // pages that fit at once, with all planes
  int n_ids() const { return static_cast<int>(holders_.size()); }
  int free() const;
  int held() const { return n_held_; }
  // Cached pages whose planes are free.
  int cached() const { return static_cast<int>(spare_.size()); }
  int shared() const { return n_holders_ - n_held_; }  // holders beyond a page's first
  uint64_t trimmed() const { return n_trimmed_; }      // trimmed entries, since the start
  bool is_held(int32_t id) const { return holders_[id] > 0; }
  // True if a holder has not trimmed the page.
  bool NeedsAll(int32_t id) const { return holders_[id] > trims_[id]; }
  // True if all planes of the page are there.
  bool is_whole(int32_t id) const;

  // Takes n pages, zeroed, appended to *out, all or nothing; false when fewer than n are free. May
  // evict cached pages.
  [[nodiscard]] bool Take(int n, std::vector<int32_t>* out);
  // Gives pages back; each must be held. Cached pages lose their bytes last to first: the first
  // entry is the last to be evicted.
  void Give(std::span<const int32_t> entries);
  // Adds one holder to each page; the pages are held or cached, and whole.
  void Hold(std::span<const int32_t> pages);
  // Tells that the holder of these entries reads no plane of a layer with a window any more. Gives
  // back the planes that only such layers need of each whole page, and changes its entry. CHECKs
  // that a layer has a window.
  void Trim(std::span<int32_t> entries);
  // Marks a held page as cached, whole and not cached yet. on_evict, set before, is called inside
  // Take when the page's bytes are lost; it calls nothing of the pool.
  void Cache(int32_t page);
  std::function<void(int32_t)> on_evict;

 private:
  friend void CopyPage(const KvPool& pool, int32_t from, int32_t to);
  KvPool(const KvLayout& layout, int n_pages, std::unique_ptr<KvArena> arena);
  int32_t TakeOne();
  void Evict();
  void Release(int32_t entry);
  int UnneededFrames(int32_t id) const;
  void LeaveSpare(int32_t id);
  void Settle(int32_t id);
  void FreeUnneeded(int32_t id);

  const KvLayout layout_;
  const int n_pages_;
  const bool planes_apart_;
  const int n_windows_;
  const std::unique_ptr<KvArena> arena_;
  std::byte* const base_;
  int n_holders_ = 0, n_held_ = 0;
  uint64_t n_trimmed_ = 0;
  std::vector<int32_t> free_;     // ids whose bytes are neither needed nor reusable
  std::vector<int32_t> holders_;  // (ids) holders of each page
  std::vector<int32_t> trims_;    // (ids) holders that have trimmed the page
  std::vector<bool> is_cached_;   // (ids) true: all planes of the page are there
  // Cached pages with planes that are free, in the order in which they became so, and each one's
  // place.
  std::list<int32_t> spare_;
  std::vector<std::list<int32_t>::iterator> spare_at_;
  // If planes lie apart: (ids, layers) frames, free frames, and the number of frames that pages in
  // spare_ keep although nothing needs them.
  std::vector<int32_t> frames_, free_frames_;
  int n_spare_frames_ = 0;
};

// Copies the bytes of a page to another one; both are held and whole.
void CopyPage(const KvPool& pool, int32_t from, int32_t to);

}  // namespace baton
