#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "common/check.h"

namespace baton {

uint64_t PrefixIndex::DefaultHash(uint64_t salt, uint64_t before, std::span<const int32_t> tokens) {
  return absl::HashOf(salt, before, absl::Span<const int32_t>(tokens.data(), tokens.size()));
}

PrefixIndex::PrefixIndex(KvPool* pool, const ClusterKey& key, Hash hash)
    : pool_(pool), hash_(hash), namer_(key), key_of_(static_cast<size_t>(pool->n_ids())) {
  BATON_CHECK(pool->on_evict == nullptr);
  pool_->on_evict = [this](int32_t page) { Forget(page); };
}

PrefixIndex::~PrefixIndex() {
  pool_->on_evict = [](int32_t) {};
}

const PrefixIndex::Entry* PrefixIndex::Find(uint64_t key, const PrefixChain& chain,
                                            std::span<const int32_t> tokens) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  const Entry& entry = it->second;
  const bool same = entry.salt == chain.salt && entry.before == chain.last &&
                    std::equal(tokens.begin(), tokens.end(), entry.tokens.begin());
  return same ? &entry : nullptr;
}

void PrefixIndex::Hold(std::span<const int32_t> tokens, PrefixChain* chain,
                       std::vector<int32_t>* pages) {
  BATON_CHECK(chain->pages == 0);
  const auto page_tokens = static_cast<size_t>(pool_->layout().page_tokens);
  for (; tokens.size() >= page_tokens; tokens = tokens.subspan(page_tokens)) {
    const std::span<const int32_t> block = tokens.first(page_tokens);
    const Entry* const entry = Find(hash_(chain->salt, chain->last, block), *chain, block);
    if (entry == nullptr) return;
    pool_->Hold(std::span(&entry->page, 1));
    pages->push_back(entry->page);
    chain->last = entry->serial;
    chain->name = entry->name;
    ++chain->pages;
  }
}

void PrefixIndex::Enter(std::span<const int32_t> tokens, int32_t page, PrefixChain* chain) {
  BATON_CHECK(static_cast<int>(tokens.size()) == pool_->layout().page_tokens);
  const uint64_t key = hash_(chain->salt, chain->last, tokens);
  ++chain->pages;
  chain->name = namer_.After(chain->name, tokens);
  if (const auto it = entries_.find(key); it != entries_.end()) {
    const Entry* const same = Find(key, *chain, tokens);
    // Pages after another entry with the same hash are not found, which costs time and nothing
    // else.
    chain->last = same != nullptr ? same->serial : next_serial_++;
    return;
  }
  if (!IsWhole(page) || SaltOf(page).has_value()) {
    chain->last = next_serial_++;
    return;
  }
  Entry entry{.salt = chain->salt,
              .before = chain->last,
              .serial = next_serial_++,
              .tokens = {tokens.begin(), tokens.end()},
              .page = page,
              .name = chain->name};
  chain->last = entry.serial;
  entries_.emplace(key, std::move(entry));
  key_of_[page] = key;
  pool_->Cache(page);
  log_.Enter(chain->name);
}

std::vector<PageName> PrefixIndex::Names() const {
  std::vector<PageName> names;
  for (const auto& [key, entry] : entries_) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::optional<uint64_t> PrefixIndex::SaltOf(int32_t page) const {
  const auto it = entries_.find(key_of_[page]);
  const bool is_entry = it != entries_.end() && it->second.page == page;
  return is_entry ? std::make_optional(it->second.salt) : std::nullopt;
}

void PrefixIndex::Forget(int32_t page) {
  const auto it = entries_.find(key_of_[page]);
  BATON_CHECK(it != entries_.end() && it->second.page == page);
  log_.Lose(it->second.name);
  entries_.erase(it);
}

}  // namespace baton
