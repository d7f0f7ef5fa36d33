// The expected contents of all workers' prefix caches, a PrefixMemory each, by what they were sent
// and reported. Part of the Router, on its thread. Calls ignore unknown workers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "proto/messages.h"
#include "router/policy.h"
#include "router/prefix_memory.h"

namespace baton {

class CachedPrefixes {
 public:
  // Takes in a worker that has joined. Pages of all workers have the same number of tokens.
  void Join(const WorkerAnnounce& worker);
  void Leave(Incarnation worker) { memories_.erase(worker); }

  bool empty() const { return memories_.empty(); }  // no worker reuses KV of earlier prompts
  // Returns what is expected of a prompt with these pages (PageHashes), by worker, ascending.
  std::vector<CachedPrefix> Find(const std::vector<uint64_t>& pages) const;
  // Called when the plan's workers have computed the prompt.
  void OnComputed(const Plan& plan, const AttemptSpec& spec, const std::vector<uint64_t>& pages);
  // Called when the worker reports how many tokens its prefix cache really held.
  void OnFound(const CachedPrefix& hoped, const std::vector<uint64_t>& pages, int32_t found_tokens);

 private:
  int32_t page_tokens_ = 0;
  absl::btree_map<Incarnation, PrefixMemory> memories_;
};

}  // namespace baton
