#include "router/prefix_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace baton {
namespace {

constexpr size_t kMaxPages = 1 << 16;

}  // namespace

std::vector<uint64_t> PageHashes(std::span<const int32_t> prompt, int32_t page_tokens,
                                 uint64_t salt, std::vector<uint64_t> known) {
  const auto page = static_cast<size_t>(page_tokens);
  std::vector<uint64_t> hashes = std::move(known);
  uint64_t before = hashes.empty() ? salt : hashes.back();
  for (size_t begin = hashes.size() * page; begin + page < prompt.size(); begin += page) {
    before = absl::HashOf(before, absl::Span<const int32_t>(prompt.data() + begin, page));
    hashes.push_back(before);
  }
  return hashes;
}

PrefixMemory::PrefixMemory(size_t max_pages) : max_pages_(std::min(max_pages, kMaxPages)) {}

// From the last page to the first: so the first ones are the newest, and no page is remembered
// whose beginning is not.
void PrefixMemory::Add(std::span<const uint64_t> pages) {
  ++adds_;
  pages = pages.first(std::min(pages.size(), max_pages_));
  for (size_t i = pages.size(); i-- > 0;) {
    const auto [place, is_new] = places_.try_emplace(pages[i]);
    if (is_new)
      place->second = by_use_.insert(by_use_.begin(), Use{pages[i]});
    else
      by_use_.splice(by_use_.begin(), by_use_, place->second);
    by_use_.front().add = adds_;
  }
  while (places_.size() > max_pages_) ForgetFrom(std::prev(by_use_.end()));
}

void PrefixMemory::ForgetFrom(Order::iterator first) {
  for (auto use = first; use != by_use_.end(); ++use) places_.erase(use->page);
  by_use_.erase(first, by_use_.end());
}

void PrefixMemory::Lacks(uint64_t page, uint64_t adds) {
  const auto place = places_.find(page);
  if (place != places_.end() && place->second->add <= adds) ForgetFrom(place->second);
}

size_t PrefixMemory::Find(std::span<const uint64_t> pages) const {
  const auto end = std::partition_point(pages.begin(), pages.end(),
                                        [this](uint64_t page) { return places_.contains(page); });
  return static_cast<size_t>(end - pages.begin());
}

void CachedPrefixes::Join(const WorkerAnnounce& worker) {
  page_tokens_ = worker.page_tokens;
  if (worker.reuses_kv)
    memories_.try_emplace(worker.incarnation, static_cast<size_t>(worker.pages_total));
}

std::vector<CachedPrefix> CachedPrefixes::Find(const std::vector<uint64_t>& pages) const {
  std::vector<CachedPrefix> cached;
  for (const auto& [worker, memory] : memories_)
    if (const size_t n = memory.Find(pages); n > 0)
      cached.push_back({worker, static_cast<int32_t>(n) * page_tokens_, memory.adds()});
  return cached;
}

// A slice's worker has all up to its end.
void CachedPrefixes::OnComputed(const Plan& plan, const std::vector<uint64_t>& pages) {
  for (const Incarnation worker : plan.PrefillWorkers()) {
    const auto memory = memories_.find(worker);
    if (memory == memories_.end()) continue;
    const auto last = std::find_if(plan.slices.rbegin(), plan.slices.rend(),
                                   [&](const auto& slice) { return slice.worker == worker; });
    const auto n_pages = static_cast<size_t>(last->end / page_tokens_);
    memory->second.Add(std::span(pages).first(std::min(n_pages, pages.size())));
  }
}

void CachedPrefixes::OnDecoded(Incarnation worker, const std::vector<uint64_t>& pages) {
  if (const auto memory = memories_.find(worker); memory != memories_.end())
    memory->second.Add(pages);
}

void CachedPrefixes::OnFound(const CachedPrefix& hoped, const std::vector<uint64_t>& pages,
                             int32_t found_tokens) {
  const auto memory = memories_.find(hoped.worker);
  if (memory == memories_.end() || found_tokens >= hoped.tokens) return;
  memory->second.Lacks(pages[static_cast<size_t>(found_tokens / page_tokens_)], hoped.adds);
}

}  // namespace baton
