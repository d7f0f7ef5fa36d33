// The names of the pages in a worker's prefix index, and what of it each router is still to be
// told. Keeps differences and no events, so the memory is bounded by the pages of the pool and the
// number of routers, however long nobody listens. Engine thread.
#pragma once

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "common/cached_pages.h"
#include "common/router_id.h"

namespace baton {

class PageLog {
 public:
  // A page with this name has entered the index, or is lost. Several may have one name.
  void Enter(const PageName& name);
  void Lose(const PageName& name);

  // The router knows nothing (any more): it is told everything from now on.
  void Restart(RouterId router);
  void Leave(RouterId router);  // it is told nothing more
  bool is_told(RouterId router) const;
  // The next message to a router that has not left; the router has it now. What was lost goes
  // first, so at no time the router counts more pages than the pool has.
  CachedPages Take(RouterId router);

 private:
  struct Reader {
    absl::btree_set<PageName> lost, entered;  // what was told without pages_, and the reverse
    bool restart = false;
    uint64_t n_messages = 0;
  };
  absl::btree_map<PageName, int> pages_;  // how many have each name
  absl::btree_map<RouterId, Reader> readers_;
};

}  // namespace baton
