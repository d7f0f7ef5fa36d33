// Pages that the engine lends to the link thread, so that an OPEN is answered without waiting for a
// step. A promise is a count: the ids stay here until KV arrives for them. Invariants: ids in the
// pool >= owed; pages lent = ids in the pool + pages bound to handoffs. Plain object of the link
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/check.h"

namespace baton {

class ReceivePool {
 public:
  int32_t free_pages() const { return static_cast<int32_t>(ids_.size()) - owed_; }  // unpromised
  int32_t owed() const { return owed_; }           // pages promised and not bound
  uint64_t promises() const { return promises_; }  // promises made so far
  int32_t in_pool() const { return static_cast<int32_t>(ids_.size()); }

  void Lend(const std::vector<int32_t>& ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }
  // Promises n free pages, without ids.
  void Promise(int32_t n) {
    BATON_CHECK(n <= free_pages());
    owed_ += n;
    ++promises_;
  }
  // Ends a promise of n pages, or the unused rest of one.
  void Release(int32_t n) {
    BATON_CHECK(n <= owed_);
    owed_ -= n;
  }
  // Returns the id for one promised page, which leaves the pool.
  int32_t Bind() {
    BATON_CHECK(owed_ > 0);
    --owed_;
    const int32_t id = ids_.back();
    ids_.pop_back();
    return id;
  }
  // Removes at most n unpromised pages and returns them.
  std::vector<int32_t> Reclaim(int32_t n) {
    const int32_t count = std::clamp(n, 0, free_pages());
    std::vector<int32_t> pages(ids_.end() - count, ids_.end());
    ids_.resize(ids_.size() - static_cast<size_t>(count));
    return pages;
  }

 private:
  std::vector<int32_t> ids_;
  int32_t owed_ = 0;
  uint64_t promises_ = 0;
};

}  // namespace baton
