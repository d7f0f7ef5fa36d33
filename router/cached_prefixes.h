// Which pages the workers' prefix indexes have, as they tell (CachedPages), in one index for all.
// A hint: the worker looks for itself; only predictions depend on it. Part of the Router, on its
// thread. Calls ignore unknown workers.
//
// Messages of a worker are numbered. When one is missing, nothing that the worker told counts any
// more: it is asked to restart (TellPages), and what it tells until then is passed over.
#pragma once

#include <bitset>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "router/policy.h"

namespace baton {

class CachedPrefixes {
 public:
  static constexpr size_t kMaxPages = 1 << 20;  // with different names: about 100 MB

  // key: of the names. Pages beyond max_pages are not remembered.
  explicit CachedPrefixes(const ClusterKey& key, size_t max_pages = kMaxPages)
      : namer_(key), max_pages_(max_pages) {}

  // Takes in a worker that has joined. Pages of all workers have the same number of tokens.
  void Join(const WorkerAnnounce& worker);
  void Leave(Incarnation worker);

  // True: a message was missing, and the worker is to be asked for its pages. InvalidArgument: its
  // pages or their numbers cannot be; the error says why.
  absl::StatusOr<bool> OnPages(Incarnation worker, const CachedPages& told);

  bool empty() const { return workers_.empty(); }  // no worker reuses KV

  // Names of the whole pages of these tokens. The last token is computed in any case, so the page
  // that it fills is left out. max_total_tokens: of the request, future tokens included.
  std::vector<PageName> NamesOf(std::span<const int32_t> tokens, int64_t max_total_tokens,
                                uint64_t salt) const;
  // Appends those of the pages behind the ones in `names`; tokens: all that follow these.
  void Extend(std::span<const int32_t> tokens, int64_t max_total_tokens, uint64_t salt,
              std::vector<PageName>* names) const;
  // Returns how many tokens of a prompt with these pages the workers have, by worker, ascending;
  // who has none is left out.
  std::vector<CachedPrefix> Find(std::span<const PageName> names) const;
  // Names that the worker has told and that are remembered, ascending.
  std::vector<PageName> PagesOf(Incarnation worker) const;

 private:
  static constexpr size_t kMaxWorkers = 256;  // as streams; others are not remembered
  using Workers = std::bitset<kMaxWorkers>;
  struct Told {
    size_t place = 0;       // in Workers
    int32_t max_pages = 0;  // of its pool
    int32_t n_pages = 0;    // told
    int32_t n_passed = 0;   // of these, not remembered
    uint64_t number = 0;    // of its last message
    bool counts = false;    // no message is missing since it has restarted
  };
  void Forget(Told* told);

  const PageNamer namer_;
  const size_t max_pages_;
  int32_t page_tokens_ = 0, short_range_tokens_ = 0;  // of all workers
  absl::btree_map<Incarnation, Told> workers_;
  Workers places_;  // taken
  absl::flat_hash_map<PageName, Workers> pages_;
};

}  // namespace baton
