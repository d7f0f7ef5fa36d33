// Remembers which beginnings of prompts a worker has computed, by what the worker was sent and
// reported. A hint: the worker may have evicted those pages since and looks for itself; only
// predictions depend on it. Part of the Router, on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "router/policy.h"

namespace baton {

// (whole pages) Hash of the salt, of each page's tokens and of all tokens before them, in the order
// of the prompt: prompts with different salts have no hash in common. The last token is computed in
// any case, so the page that the token fills is left out. Pure function.
// known: the hashes of the prompt's first pages, if they are there already.
std::vector<uint64_t> PageHashes(std::span<const int32_t> prompt, int32_t page_tokens,
                                 uint64_t salt = 0, std::vector<uint64_t> known = {});

class PrefixMemory {
 public:
  // max_pages: of the worker's pool. At most 64 Ki are remembered, which with pages of 64 tokens is
  // 4 million tokens.
  explicit PrefixMemory(size_t max_pages);
  PrefixMemory(PrefixMemory&&) = default;
  PrefixMemory& operator=(PrefixMemory&&) = default;

  // Records that the worker has the KV of these pages now. pages: PageHashes of a prompt, or the
  // first ones of PageHashes.
  // Forgets the least recently used pages, the last pages of a prompt first, as pools do.
  void Add(std::span<const uint64_t> pages);
  // Number of the first pages that the worker is expected to have.
  size_t Find(std::span<const uint64_t> pages) const;
  // Records that the worker lacked this page after `adds` calls of Add: it was evicted, and with it
  // every page used before it, unless a later Add brought it back.
  void Lacks(uint64_t page, uint64_t adds);
  uint64_t adds() const { return adds_; }
  size_t size() const { return places_.size(); }

 private:
  struct Use {
    uint64_t page = 0;
    uint64_t add = 0;  // number of the Add that used it
  };
  using Order = std::list<Use>;
  void ForgetFrom(Order::iterator first);
  size_t max_pages_;
  uint64_t adds_ = 0;
  Order by_use_;  // newest first
  absl::flat_hash_map<uint64_t, Order::iterator> places_;
};

// The memories of all workers. Calls ignore unknown workers.
class CachedPrefixes {
 public:
  // Takes in a worker that has joined. Pages of all workers have the same number of tokens.
  void Join(const WorkerAnnounce& worker);
  void Leave(Incarnation worker) { memories_.erase(worker); }

  bool empty() const { return memories_.empty(); }  // no worker reuses KV of earlier prompts
  // Returns what is expected of a prompt with these pages (PageHashes), by worker, ascending.
  std::vector<CachedPrefix> Find(const std::vector<uint64_t>& pages) const;
  // Called when the plan's workers have computed the prompt.
  void OnComputed(const Plan& plan, const std::vector<uint64_t>& pages);
  // Called when the worker has decoded a sequence. pages: PageHashes of prompt and answer.
  void OnDecoded(Incarnation worker, const std::vector<uint64_t>& pages);
  // Called when the worker reports how many tokens its prefix cache really held.
  void OnFound(const CachedPrefix& hoped, const std::vector<uint64_t>& pages, int32_t found_tokens);

 private:
  int32_t page_tokens_ = 0;
  absl::btree_map<Incarnation, PrefixMemory> memories_;
};

}  // namespace baton
