// The KV arena of one worker and the ids of its pages. Ids here, bytes in KvLayout.
// Engine thread only (the link thread gets page ids by value and the arena's address once).
// Every page is free or held by exactly one holder (a sequence, or the purse lent to the link
// thread); free + held = total is checked on every change. A page's bytes are zeroed before its new
// owner may see them (numerics rule N9: unwritten slots must be finite).
#pragma once

#include <cstdint>
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
  int total() const { return n_pages_; }
  int free() const { return static_cast<int>(free_.size()); }
  int held() const { return n_pages_ - free(); }
  bool is_held(int32_t id) const { return is_held_[id]; }

  // Takes n pages, zeroed, appended to *out, all or nothing; false when fewer than n are free.
  [[nodiscard]] bool Take(int n, std::vector<int32_t>* out);
  // Gives pages back; each must be held.
  void Give(std::span<const int32_t> pages);

 private:
  KvPool(const KvLayout& layout, int n_pages, std::byte* base, int64_t bytes);
  KvLayout layout_;
  int n_pages_;
  std::byte* base_;
  int64_t arena_bytes_;
  std::vector<int32_t> free_;
  std::vector<bool> is_held_;
};

}  // namespace baton
