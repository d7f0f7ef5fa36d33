// Remembers what workers have cached behind the whole pages of recent requests: the tokens of a
// last page that is not full, and of a first one, whose beginning other prompts may share. Workers
// copy the part that is the same (docs/KV.md) and tell the router of whole pages alone, so the
// router remembers which tokens it had them compute. A hint for predictions, as CachedPrefixes is.
// Part of the Router, on its thread.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/page_name.h"
#include "router/policy.h"

namespace baton {

class CachedTails {
 public:
  static constexpr size_t kMaxTails = 1 << 15;  // the oldest go
  static constexpr int kOfWorker = 4;           // at a place: each worker's newest

  // The worker has the KV of these tokens, a page at most, behind the page `before`, or behind the
  // beginning (PageName::Beginning).
  void Enter(Incarnation worker, const PageName& before, std::vector<int32_t> tokens);
  // Returns how many tokens of a prompt each worker has behind the whole pages in `cached`, less
  // than a page; who has none is left out. cached: ascending by worker.
  std::vector<CachedPrefix> Find(const PageName& beginning, std::span<const PageName> names,
                                 std::span<const int32_t> tokens,
                                 std::span<const CachedPrefix> cached, int32_t page_tokens) const;
  void Leave(Incarnation worker);

 private:
  struct Tail {
    Incarnation worker = 0;
    uint64_t number = 0;  // of its last Enter
    std::vector<int32_t> tokens{};
  };
  struct Entered {
    PageName before;
    Incarnation worker;
    uint64_t number;
  };
  absl::flat_hash_map<PageName, std::vector<Tail>> tails_;  // by the page before
  std::deque<Entered> order_;  // the oldest first; some are gone or were entered again since
  uint64_t n_entered_ = 0;
};

}  // namespace baton
