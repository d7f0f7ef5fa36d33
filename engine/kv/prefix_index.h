// Finds pages of a worker's pool whose KV a sequence of tokens begins with, so that the KV is not
// computed or moved again: of prompts computed here and of sequences decoded here, their generated
// tokens included (docs/KV.md, prefix reuse). One per worker, for both phases. Engine thread.
//
// An entry is a page of tokens after another entry (or at one of two beginnings, for RoPE's two
// ranges, under a salt: prompts of different ranges or salts never share an entry). An entry is
// named by a serial number that is never used again, and its key is (salt, serial of the entry
// before, its tokens), so by induction an entry's whole beginning is the same. Siblings, the
// entries after the same one, are in the order of their tokens.
//
// Full pages are shared by their holders. A page with fewer tokens is an entry, too, also while its
// holder goes on writing behind them; its KV, and that of the first tokens of a full page, is found
// to be copied (TakeCopy). Nothing follows an entry that is not full.
//
// The pages of entries are "cached" ones of the pool: while free they may be taken away at any
// time, the leaves first, and the index forgets them then. Only pages whose KV is computed are
// entered; a lookup makes the caller a holder at once. Routers learn of full pages by their
// names (PageLog); the index itself trusts no name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
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

// A page that has the KV of this many of the tokens looked for, from the first on.
struct PrefixPart {
  int32_t page = kNoPage;
  int n_tokens = 0;
};

class PrefixIndex {
 public:
  // The pool must outlive the index and have no cached pages of another index. key: of the names.
  explicit PrefixIndex(KvPool* pool, const ClusterKey& key = {});
  ~PrefixIndex();  // the pool's pages stay; nothing is found in them any more
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // Follows `tokens` page by page as far as there are entries; the caller becomes a holder of their
  // pages, which are appended to *pages. The chain starts at the beginning.
  void Hold(std::span<const int32_t> tokens, PrefixChain* chain, std::vector<int32_t>* pages);
  // Returns how many pages Hold would find; nobody becomes their holder.
  int Count(std::span<const int32_t> tokens, PrefixChain chain) const;
  // Takes a page of the pool for a copy of the page after the chain that shares the most of its
  // first tokens with `tokens`; kNoPage: none shares `min_tokens` tokens, or no page is free.
  PrefixPart TakeCopy(std::span<const int32_t> tokens, const PrefixChain& chain, int min_tokens);
  // Adds an entry. `page` is held and has the KV of `tokens`, which follow the chain. A full page
  // moves the chain on; a page of fewer tokens does not, and when it has more it is entered again.
  // An entry for the same tokens that is there already stays instead. A page that is trimmed, or an
  // entry elsewhere (under a beginning that is no longer found), is not entered.
  void Enter(std::span<const int32_t> tokens, int32_t page, PrefixChain* chain);

  // The salt under which the page is found; empty: it is no entry.
  std::optional<uint64_t> SaltOf(int32_t page) const;
  int n_entries() const { return n_entries_; }
  // Names of the full pages, ascending, each once.
  std::vector<PageName> Names() const;
  // Has what each router is still to be told of it.
  PageLog& log() { return log_; }

 private:
  struct Parent {
    uint64_t salt = 0, serial = 0;
    bool operator==(const Parent&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Parent& p) {
      return H::combine(std::move(h), p.salt, p.serial);
    }
  };
  struct Entry {
    Parent parent{};
    uint64_t serial = 0;
    int32_t page = 0;
    PageName name{};  // of a full page
  };
  struct Less {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
      return std::ranges::lexicographical_compare(a, b);
    }
  };
  using Siblings = std::map<std::vector<int32_t>, Entry, Less>;  // by tokens
  bool IsFull(std::span<const int32_t> tokens) const {
    return static_cast<int>(tokens.size()) == pool_->layout().page_tokens;
  }
  const Siblings* After(const PrefixChain& chain) const;  // null: none
  // Moves the chain on by the full page that `tokens` begin with; null: there is no such entry.
  const Entry* Follow(std::span<const int32_t> tokens, PrefixChain* chain) const;
  PrefixPart FindPart(std::span<const int32_t> tokens, const PrefixChain& chain) const;
  // Makes the page's entry, or gives it the tokens that the page has now; null: the page is not to
  // be entered there.
  Entry* Add(const Parent& parent, std::span<const int32_t> tokens, int32_t page);
  void Forget(int32_t page);

  KvPool* const pool_;
  const PageNamer namer_;
  PageLog log_;
  uint64_t next_serial_ = 1;
  absl::flat_hash_map<Parent, Siblings> entries_;
  std::vector<std::optional<Siblings::iterator>> of_page_;  // by page: its entry
  int n_entries_ = 0;
};

}  // namespace baton
