// A worker tells its routers of the pages in its prefix index. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "common/page_name.h"

namespace baton {

struct CachedPages {
  static constexpr size_t kMaxNames = 1024;  // of one message, both lists together
  uint64_t number = 0;                       // 1, 2, ...: of the messages to a router
  // Nothing that was told before counts any more. Messages with all pages follow, this one first.
  bool restart = false;
  // Since the message before: pages whose KV is gone, then pages whose KV can be found now. A page
  // is told once, however many pages of the pool have its tokens.
  std::vector<PageName> lost{}, entered{};
};

}  // namespace baton
