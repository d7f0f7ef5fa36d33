// The names of the pages in a worker's prefix index, and what of it the router is still to be told.
// Keeps differences and no events, so the memory is bounded by the pages of the pool, however long
// nobody listens. Engine thread.
#pragma once

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "common/cached_pages.h"

namespace baton {

class PageLog {
 public:
  // A page with this name has entered the index, or is lost. Several may have one name.
  void Enter(const PageName& name);
  void Lose(const PageName& name);

  // The router knows nothing (any more).
  void Restart();
  bool is_told() const { return !restart_ && lost_.empty() && entered_.empty(); }
  // The next message; the router has it now. What was lost goes first, so at no time the router
  // counts more pages than the pool has.
  CachedPages Take();

 private:
  absl::btree_map<PageName, int> pages_;      // how many have each name
  absl::btree_set<PageName> lost_, entered_;  // what was told without pages_, and the reverse
  bool restart_ = false;
  uint64_t n_messages_ = 0;
};

}  // namespace baton
