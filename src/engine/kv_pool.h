// The KV arena of one worker and the ids of its pages. Ids here, bytes in KvLayout.
// Engine thread only (the link thread gets page ids by value and the arena's address once).
// A page is held by one holder or more (sequences, or the purse lent to the link thread), or free;
// free + held = total. Only one that nobody writes any more may have several. A page's bytes are
// zeroed before its new owner may see them (numerics rule N9: unwritten slots must be finite).
//
// A cached page keeps its bytes when its last holder gives it back: it is free, but taken only when
// no other is left, the one given back longest ago first, and until then may be held again.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "engine/kv_layout.h"

namespace baton {

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
  std::byte* page(int32_t id) const {
    return base_ + static_cast<int64_t>(id) * layout_.page_bytes;
  }
  KvPlaneTable planes(int layer) const {
    return {base_ + layout_.planes[layer].offset, layout_.page_bytes};
  }
  std::byte* plane(int32_t page, int layer) const { return planes(layer).At(page); }
  int total() const { return n_pages_; }
  int free() const { return static_cast<int>(free_.size() + idle_.size()); }
  int held() const { return n_pages_ - free(); }
  int cached() const { return static_cast<int>(idle_.size()); }  // free, and cached
  int shared() const { return n_holders_ - held(); }             // holders beyond a page's first
  bool is_held(int32_t id) const { return holders_[id] > 0; }

  // Takes n pages, zeroed, appended to *out, all or nothing; false when fewer than n are free.
  [[nodiscard]] bool Take(int n, std::vector<int32_t>* out);
  // Gives pages back; each must be held. The first one is the last of them to lose its bytes.
  void Give(std::span<const int32_t> pages);
  // One holder more of each; they are held or cached.
  void Hold(std::span<const int32_t> pages);
  // Marks a held page as cached; on_evict is called when its bytes are lost.
  void Cache(int32_t page);
  std::function<void(int32_t)> on_evict;

 private:
  int32_t TakeOne();

  KvPool(const KvLayout& layout, int n_pages, std::byte* base, int64_t bytes);
  KvLayout layout_;
  int n_pages_;
  std::byte* base_;
  int64_t arena_bytes_;
  int n_holders_ = 0;
  std::vector<int32_t> free_;  // and not cached
  std::list<int32_t> idle_;    // free and cached, in order of being given back
  std::vector<int32_t> holders_;
  std::vector<bool> is_cached_;
  std::vector<std::list<int32_t>::iterator> idle_at_;  // of a page in idle_
};

}  // namespace baton
