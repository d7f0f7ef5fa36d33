#include "engine/kv/prefix_index.h"

#include "common/check.h"

namespace baton {

PrefixIndex::PrefixIndex(KvPool* pool, const ClusterKey& key)
    : pool_(pool), namer_(key), of_page_(static_cast<size_t>(pool->n_ids())) {
  BATON_CHECK(pool->on_evict == nullptr);
  pool_->on_evict = [this](int32_t page) { Forget(page); };
}

PrefixIndex::~PrefixIndex() {
  pool_->on_evict = [](int32_t) {};
}

const PrefixIndex::Siblings* PrefixIndex::After(const PrefixChain& chain) const {
  const auto it = entries_.find({chain.salt, chain.last});
  return it == entries_.end() ? nullptr : &it->second;
}

const PrefixIndex::Entry* PrefixIndex::Follow(std::span<const int32_t> tokens,
                                              PrefixChain* chain) const {
  const auto page_tokens = static_cast<size_t>(pool_->layout().page_tokens);
  const Siblings* const after = tokens.size() < page_tokens ? nullptr : After(*chain);
  if (after == nullptr) return nullptr;
  const auto it = after->find(tokens.first(page_tokens));
  if (it == after->end()) return nullptr;
  chain->last = it->second.serial;
  chain->name = it->second.name;
  ++chain->pages;
  return &it->second;
}

void PrefixIndex::Hold(std::span<const int32_t> tokens, PrefixChain* chain,
                       std::vector<int32_t>* pages) {
  BATON_CHECK(chain->pages == 0);
  const auto page_tokens = static_cast<size_t>(pool_->layout().page_tokens);
  for (; const Entry* const entry = Follow(tokens, chain); tokens = tokens.subspan(page_tokens)) {
    pool_->Hold(std::span(&entry->page, 1));
    pages->push_back(entry->page);
  }
}

int PrefixIndex::Count(std::span<const int32_t> tokens, PrefixChain chain) const {
  const auto page_tokens = static_cast<size_t>(pool_->layout().page_tokens);
  while (Follow(tokens, &chain) != nullptr) tokens = tokens.subspan(page_tokens);
  return chain.pages;
}

PrefixPart PrefixIndex::FindPart(std::span<const int32_t> tokens, const PrefixChain& chain) const {
  PrefixPart best;
  const Siblings* const after = After(chain);
  if (after == nullptr) return best;
  const auto compare = [&](Siblings::const_iterator it) {
    const auto differ = std::ranges::mismatch(it->first, tokens).in2;
    const auto n_tokens = static_cast<int>(differ - tokens.begin());
    if (n_tokens > best.n_tokens) best = {it->second.page, n_tokens};
  };
  // In the order of tokens, no sibling has more in common with these than one of their neighbours.
  const auto next = after->lower_bound(tokens);
  if (next != after->end()) compare(next);
  if (next != after->begin()) compare(std::prev(next));
  return best;
}

PrefixPart PrefixIndex::TakeCopy(std::span<const int32_t> tokens, const PrefixChain& chain,
                                 int min_tokens) {
  const PrefixPart found = FindPart(tokens, chain);
  if (found.n_tokens < min_tokens) return {};
  const std::span source(&found.page, 1);
  std::vector<int32_t> copy;
  pool_->Hold(source);  // or it might be the one that is taken
  if (pool_->Take(1, &copy)) CopyPage(*pool_, found.page, copy.front());
  pool_->Give(source);
  return copy.empty() ? PrefixPart{} : PrefixPart{copy.front(), found.n_tokens};
}

void PrefixIndex::Enter(std::span<const int32_t> tokens, int32_t page, PrefixChain* chain) {
  BATON_CHECK(!tokens.empty() && static_cast<int>(tokens.size()) <= pool_->layout().page_tokens);
  const Parent parent{chain->salt, chain->last};
  if (!IsFull(tokens)) {
    Add(parent, tokens, page);
    return;
  }
  ++chain->pages;
  chain->name = namer_.After(chain->name, tokens);
  if (const Siblings* const after = After(*chain)) {
    if (const auto same = after->find(tokens); same != after->end()) {
      chain->last = same->second.serial;
      return;
    }
  }
  Entry* const entry = Add(parent, tokens, page);
  // Pages after one that is not entered are not found, which costs time and nothing else.
  chain->last = entry != nullptr ? entry->serial : next_serial_++;
  if (entry == nullptr) return;
  entry->name = chain->name;
  log_.Enter(chain->name);
}

PrefixIndex::Entry* PrefixIndex::Add(const Parent& parent, std::span<const int32_t> tokens,
                                     int32_t page) {
  if (!IsWhole(page)) return nullptr;
  auto& place = of_page_[page];
  if (!place) {
    Siblings& siblings = entries_[parent];
    const auto [it, is_new] = siblings.try_emplace({tokens.begin(), tokens.end()});
    if (!is_new) return nullptr;
    it->second = {.parent = parent, .serial = next_serial_++, .page = page};
    place = it;
    ++n_entries_;
    pool_->Cache(page);
    return &it->second;
  }
  const auto& [before, entry] = **place;
  const bool extends = entry.parent == parent && before.size() < tokens.size() &&
                       std::ranges::equal(before, tokens.first(before.size()));
  if (!extends) return nullptr;
  Siblings& siblings = entries_.at(parent);
  if (siblings.contains(tokens)) return nullptr;
  auto node = siblings.extract(*place);
  node.key().assign(tokens.begin(), tokens.end());
  place = siblings.insert(std::move(node)).position;
  return &(*place)->second;
}

std::vector<PageName> PrefixIndex::Names() const {
  std::vector<PageName> names;
  for (const auto& [parent, siblings] : entries_)
    for (const auto& [tokens, entry] : siblings)
      if (IsFull(tokens)) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::optional<uint64_t> PrefixIndex::SaltOf(int32_t page) const {
  const auto& place = of_page_[page];
  return place ? std::make_optional((*place)->second.parent.salt) : std::nullopt;
}

void PrefixIndex::Forget(int32_t page) {
  const auto place = std::exchange(of_page_[page], std::nullopt);
  BATON_CHECK(place.has_value());
  if (IsFull((*place)->first)) log_.Lose((*place)->second.name);
  const auto of_parent = entries_.find((*place)->second.parent);
  of_parent->second.erase(*place);
  if (of_parent->second.empty()) entries_.erase(of_parent);
  --n_entries_;
}

}  // namespace baton
