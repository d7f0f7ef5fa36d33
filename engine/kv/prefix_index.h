// Finds pages of a worker's pool whose KV a sequence of tokens begins with, so that the KV is not
// computed or moved again: of prompts computed here and of sequences decoded here, their generated
// tokens included (docs/KV.md, prefix reuse). One per worker, for both phases. Engine thread.
//
// An entry is a whole page of tokens after another entry (or at one of two beginnings, for RoPE's
// two ranges, under a salt: prompts of different ranges or salts never share an entry). An entry is
// named by a serial number that is never used again, and its key is (salt, serial of the entry
// before, its tokens). A hit compares all three, so by induction the whole beginning is the same;
// hashes only find candidates.
//
// The pages of entries are "cached" ones of the pool: while free they may be taken away at any
// time, the leaves first, and the index forgets them then. Only pages whose KV is computed are
// entered; a lookup makes the caller a holder at once. The router learns of both by the names of
// the pages (PageLog); the index itself trusts no name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/kv/kv_pool.h"
#include "engine/kv/page_log.h"
#include "engine/model/rope.h"

namespace baton {

// How far a sequence of tokens has been followed through the index.
struct PrefixChain {
  // The chain before the first page.
  static PrefixChain Beginning(uint64_t salt, RopeRange range) {
    const bool is_long = range == RopeRange::kLong;
    return {.salt = salt,
            .last = is_long ? kLongBeginning : kBeginning,
            .name = PageName::Beginning(salt, is_long)};
  }
  uint64_t salt = 0;
  // Serial of the entry reached, or one of the two beginnings, of RoPE's two ranges; no entry
  // follows both.
  static constexpr uint64_t kBeginning = 0, kLongBeginning = ~uint64_t{0};
  uint64_t last = kBeginning;
  int32_t pages = 0;  // entries from the beginning
  PageName name{};    // of the entry reached
};

class PrefixIndex {
 public:
  using Hash = uint64_t (*)(uint64_t salt, uint64_t before, std::span<const int32_t> tokens);
  static uint64_t DefaultHash(uint64_t salt, uint64_t before, std::span<const int32_t> tokens);

  // The pool must outlive the index and have no cached pages of another index. key: of the names.
  explicit PrefixIndex(KvPool* pool, const ClusterKey& key = {}, Hash hash = DefaultHash);
  ~PrefixIndex();  // the pool's pages stay; nothing is found in them any more
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Follows `tokens` page by page as far as there are entries; the caller becomes a holder of their
  // pages, which are appended to *pages. The chain starts at the beginning.
  void Hold(std::span<const int32_t> tokens, PrefixChain* chain, std::vector<int32_t>* pages);
  // Adds an entry and moves the chain on. `page` is held and has the KV of the page_tokens
  // `tokens`, which follow the chain. An entry for the same tokens that is there already stays
  // instead. A page that is trimmed, or an entry already (under a beginning that is no longer
  // found), only moves the chain on.
  void Enter(std::span<const int32_t> tokens, int32_t page, PrefixChain* chain);

  // The salt under which the page is found; empty: it is no entry.
  std::optional<uint64_t> SaltOf(int32_t page) const;
  int n_entries() const { return static_cast<int>(entries_.size()); }
  // Names of the entries' pages, ascending, each once.
  std::vector<PageName> Names() const;
  // Has what the router is still to be told of it.
  PageLog& log() { return log_; }

 private:
  struct Entry {
    uint64_t salt = 0, before = 0, serial = 0;
    std::vector<int32_t> tokens;
    int32_t page = 0;
    PageName name{};
  };
  const Entry* Find(uint64_t key, const PrefixChain& chain, std::span<const int32_t> tokens) const;
  void Forget(int32_t page);

  KvPool* const pool_;
  const Hash hash_;
  const PageNamer namer_;
  PageLog log_;
  uint64_t next_serial_ = 1;
  absl::flat_hash_map<uint64_t, Entry> entries_;  // by hash; of two with one hash, the first
  std::vector<uint64_t> key_of_;                  // by page: its entry's hash
};

}  // namespace baton
