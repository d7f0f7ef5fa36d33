// The prompts whose KV is being computed, by the names of their pages: a request whose prompt has
// the same beginning may wait for that KV instead of having it computed a second time. Choices of
// one prompt, the same choices after a failover, and requests behind one system prompt are all the
// same case. Part of the Router, on its thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/page_name.h"

namespace baton {

class PromptsUnderWay {
 public:
  // pages: of the prompt (CachedPrefixes::NamesOf). done_at: predicted; infinite: unknown. The
  // request has not entered, and follows nobody.
  void Enter(RequestId id, const std::vector<PageName>& pages, absl::Time done_at);
  // The request's KV is where later ones find it, or will not come: frees its followers. Ignores
  // requests that have not entered.
  void Leave(RequestId id);

  struct Leader {
    RequestId id = 0;  // 0: none
    size_t n_pages = 0;
    absl::Time done_at;
  };
  // The request that computes the longest beginning of these pages.
  Leader Find(const std::vector<PageName>& pages) const;
  void Follow(RequestId follower, RequestId leader) { followers_[leader].push_back(follower); }
  // Followers whose leaders have left since the last call, in the order in which they followed;
  // some may be over.
  std::vector<RequestId> TakeFreed();

 private:
  struct Prompt {
    std::vector<PageName> pages;
    absl::Time done_at;
  };
  absl::flat_hash_map<RequestId, Prompt> prompts_;
  // By page: the first request that has entered with it. When that one leaves, others with the page
  // count no more.
  absl::flat_hash_map<PageName, RequestId> leaders_;
  absl::flat_hash_map<RequestId, std::vector<RequestId>> followers_;  // by leader
  std::vector<RequestId> freed_;
};

}  // namespace baton
