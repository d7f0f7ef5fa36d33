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
  int32_t free_pages() const { return static_cast<int32_t>(pages_.size()) - owed_; }  // unpromised
  int32_t owed() const { return owed_; }           // pages promised and not bound
  uint64_t promises() const { return promises_; }  // promises made so far
  int32_t in_pool() const { return static_cast<int32_t>(pages_.size()); }

  // after: the engine may still write the pages until then (LendPages).
  void Lend(const std::vector<int32_t>& ids, uint64_t after = 0) {
    for (const int32_t id : ids) pages_.push_back({id, after});
  }
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
  // Returns the id for one promised page, which leaves the pool; raises *after to the page's.
  int32_t Bind(uint64_t* after) {
    BATON_CHECK(owed_ > 0);
    --owed_;
    const Page page = pages_.back();
    pages_.pop_back();
    *after = std::max(*after, page.after);
    return page.id;
  }
  // Removes at most n unpromised pages and returns them.
  std::vector<int32_t> Reclaim(int32_t n) {
    const int32_t count = std::clamp(n, 0, free_pages());
    std::vector<int32_t> ids;
    for (auto page = pages_.end() - count; page != pages_.end(); ++page) ids.push_back(page->id);
    pages_.resize(pages_.size() - static_cast<size_t>(count));
    return ids;
  }

 private:
  struct Page {
    int32_t id;
    uint64_t after;
  };
  std::vector<Page> pages_;
  int32_t owed_ = 0;
  uint64_t promises_ = 0;
};

}  // namespace baton
