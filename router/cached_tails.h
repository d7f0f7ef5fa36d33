// Remembers what workers have cached behind the whole pages of recent requests: the tokens of a
// last page that is not full, and of a first one, whose beginning other prompts may share. Workers
// copy the part that is the same (docs/KV.md) and tell the router of whole pages alone, so the
// router remembers which tokens it had them compute. A hint for predictions, as CachedPrefixes is.
// Part of the Router, on its thread.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/page_name.h"
#include "router/policy.h"

namespace baton {

class CachedTails {
 public:
  static constexpr size_t kMaxPlaces = 8192;  // with different pages before them; the oldest go
  static constexpr size_t kMaxTails = 4;      // at a place: the newest

  // The worker has the KV of these tokens: names of their whole pages, and of the beginning before
  // the first (PageName::Beginning). page_tokens is positive.
  void Enter(Incarnation worker, const PageName& beginning, std::span<const PageName> names,
             std::span<const int32_t> tokens, int32_t page_tokens);
  // Returns how many tokens of a prompt each worker has behind the whole pages in `cached`, less
  // than a page; who has none is left out.
  std::vector<CachedPrefix> Find(const PageName& beginning, std::span<const PageName> names,
                                 std::span<const int32_t> tokens,
                                 std::span<const CachedPrefix> cached, int32_t page_tokens) const;
  void Leave(Incarnation worker);

 private:
  struct Tail {
    Incarnation worker = 0;
    std::vector<int32_t> tokens{};
  };
  void Enter(const PageName& before, Tail tail);

  absl::flat_hash_map<PageName, std::vector<Tail>> tails_;  // by the page before
  std::deque<PageName> order_;                              // of places, the oldest first
};

}  // namespace baton
