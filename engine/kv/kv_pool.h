// The KV arena of one worker and the ids of its pages. Ids here, bytes in KvLayout.
// Engine thread only (the link thread gets page ids by value, and once the addresses of the arena
// and of the frames; the frames of a page it works on do not change meanwhile).
// A page is held by one holder or more (sequences, or the lender lent to the link thread), or free.
// Only one that nobody writes any more may have several. A page's bytes are zeroed before its new
// owner may see them (docs/NUMERICS.md N9: unwritten slots must be finite).
//
// A cached page keeps its bytes when its last holder gives it back: it is free, but taken only when
// no other is left, the one given back longest ago first, and until then may be held again.
//
// Trim is how a sequence gives back pages that fell out of the window. If all layers have one, that
// is the page. If some have, the page stays held, and the planes of layers with a window are free
// when its last holder has trimmed it (those of a cached page: when no other free page is left, and
// then it is cached no more). The arena is one row of frames then, each of which takes any plane of
// any page, so no memory is set aside for either kind of layer; there are more ids than pages that
// fit at once, and free() counts those that can be taken, with all planes.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine/kv/kv_layout.h"

namespace baton {

// Entries of a sequence's page table: the id of a page whose planes are all there, or, after Trim,
// that of one without planes of layers with a window, or no page at all.
inline constexpr int32_t kNoPage = -1;
constexpr int32_t TrimmedEntry(int32_t page) { return -2 - page; }
constexpr bool IsWhole(int32_t entry) { return entry >= 0; }
constexpr int32_t PageOf(int32_t entry) { return entry >= kNoPage ? entry : -2 - entry; }
// Pages a table with such entries holds.
int CountPages(std::span<const int32_t> entries);

class KvPool {
 public:
  // Maps an anonymous, pre-faulted arena of n_pages (huge pages where the system gives them).
  // Error: not enough memory, with the bytes asked for and the setting to lower.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const KvLayout& layout, int n_pages);
  ~KvPool();  // CHECKs that every page came back
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  std::byte* base() const { return base_; }
  // Valid as long as the pool, for pages that are held.
  KvPlaneTable planes(int layer) const;
  std::byte* plane(int32_t page, int layer) const { return planes(layer).At(page); }
  // Frames of all planes, (ids, layers), -1: none; null where planes do not lie apart.
  const int32_t* frames() const { return frames_.empty() ? nullptr : frames_.data(); }

  int total() const { return n_pages_; }  // that fit at once, with all planes
  int n_ids() const { return static_cast<int>(holders_.size()); }
  int free() const;
  int held() const { return n_held_; }
  int cached() const { return static_cast<int>(spare_.size()); }  // with planes that are free
  int shared() const { return n_holders_ - n_held_; }             // holders beyond a page's first
  uint64_t trimmed() const { return n_trimmed_; }                 // entries, since the start
  bool is_held(int32_t id) const { return holders_[id] > 0; }
  bool NeedsAll(int32_t id) const {
    return holders_[id] > trims_[id];
  }  // a holder that did not trim
  // Its planes are all there.
  bool is_whole(int32_t id) const;

  // Takes n pages, zeroed, appended to *out, all or nothing; false when fewer than n are free.
  [[nodiscard]] bool Take(int n, std::vector<int32_t>* out);
  // Gives pages back; each must be held. The first one is the last of them to lose its bytes.
  void Give(std::span<const int32_t> entries);
  // One holder more of each; they are held or cached, and whole.
  void Hold(std::span<const int32_t> pages);
  // The holder of these entries reads no plane of a layer with a window any more: of each that is
  // whole, gives back what only such layers need, and changes the entry.
  void Trim(std::span<int32_t> entries);
  // Marks a held page as cached; on_evict is called when its bytes are lost.
  void Cache(int32_t page);
  std::function<void(int32_t)> on_evict;

 private:
  KvPool(const KvLayout& layout, int n_pages, std::byte* base, int64_t bytes);
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
  std::byte* const base_;
  const int64_t arena_bytes_;
  int n_holders_ = 0, n_held_ = 0;
  uint64_t n_trimmed_ = 0;
  std::vector<int32_t> free_;     // ids without a byte that anybody needs or may reuse
  std::vector<int32_t> holders_;  // by id
  std::vector<int32_t> trims_;    // of these, how many have trimmed the page
  std::vector<bool> is_cached_;   // by id; all its planes are there
  // Cached pages with planes that nobody needs, in order of becoming so, and the place of each.
  std::list<int32_t> spare_;
  std::vector<std::list<int32_t>::iterator> spare_at_;
  // Where planes lie apart: (ids, layers), free ones, and those nobody needs of pages in spare_.
  std::vector<int32_t> frames_, free_frames_;
  int n_spare_frames_ = 0;
};

}  // namespace baton
