// Which beginnings of prompts a worker has computed lately, as far as the router knows: what it was
// sent and said it had computed. A hint: the worker may have given those pages away since, and
// looks for itself; nothing but predictions depends on it. Part of the Router, on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton {

// Of each whole page of a prompt, the first one's first: a hash of its tokens and of all before
// them. The last token is computed in any case, so its page is not among them.
std::vector<uint64_t> PageHashes(std::span<const int32_t> prompt, int32_t page_tokens);

class PrefixMemory {
 public:
  // As many as the worker's pool has, or fewer: 64 Ki pages of 64 tokens are 4 million tokens.
  explicit PrefixMemory(size_t max_pages);
  PrefixMemory(PrefixMemory&&) = default;
  PrefixMemory& operator=(PrefixMemory&&) = default;

  // The worker has the KV of these pages now. Those used the longest ago are forgotten, of one
  // prompt its last pages first, as pools do.
  void Add(std::span<const uint64_t> pages);
  // How many of them, from the first on, it has.
  size_t Find(std::span<const uint64_t> pages) const;
  // The worker did not have this page when there had been so many Adds: it had given it away, and
  // with it all that was used before. Unless it came again since.
  void Lacks(uint64_t page, uint64_t adds);
  uint64_t adds() const { return adds_; }
  size_t size() const { return places_.size(); }

 private:
  struct Use {
    uint64_t page = 0;
    uint64_t add = 0;  // which one
  };
  using Order = std::list<Use>;
  void ForgetFrom(Order::iterator first);
  size_t max_pages_;
  uint64_t adds_ = 0;
  Order by_use_;  // the newest first
  absl::flat_hash_map<uint64_t, Order::iterator> places_;
};

}  // namespace baton
