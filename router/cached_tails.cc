#include "router/cached_tails.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr int kMaxDivisor = 8;  // workers copy a part of a page if it is one in so many at least

}  // namespace

void CachedTails::Enter(const PageName& before, Tail tail) {
  if (tail.tokens.empty()) return;
  const auto [place, is_new] = tails_.try_emplace(before);
  std::vector<Tail>& tails = place->second;
  std::erase_if(tails, [&](const Tail& earlier) {
    return earlier.worker == tail.worker && earlier.tokens == tail.tokens;
  });
  if (tails.size() == kMaxTails) tails.erase(tails.begin());
  tails.push_back(std::move(tail));
  if (!is_new) return;
  order_.push_back(before);
  if (order_.size() <= kMaxPlaces) return;
  tails_.erase(order_.front());
  order_.pop_front();
}

void CachedTails::Enter(Incarnation worker, const PageName& beginning,
                        std::span<const PageName> names, std::span<const int32_t> tokens,
                        int32_t page_tokens) {
  BATON_CHECK(page_tokens > 0);
  const auto page = static_cast<size_t>(page_tokens);
  const auto add = [&](const PageName& before, size_t from) {
    const std::span<const int32_t> tail =
        tokens.subspan(from, std::min(page, tokens.size() - from));
    Enter(before, {.worker = worker, .tokens = {tail.begin(), tail.end()}});
  };
  if (!tokens.empty()) add(beginning, 0);
  if (const size_t whole = names.size() * page; !names.empty() && whole < tokens.size())
    add(names.back(), whole);
}

std::vector<CachedPrefix> CachedTails::Find(const PageName& beginning,
                                            std::span<const PageName> names,
                                            std::span<const int32_t> tokens,
                                            std::span<const CachedPrefix> cached,
                                            int32_t page_tokens) const {
  std::vector<CachedPrefix> found;
  if (page_tokens <= 0) return found;
  const auto pages_at = [&](Incarnation worker) {
    for (const CachedPrefix& prefix : cached)
      if (prefix.worker == worker) return static_cast<size_t>(prefix.tokens / page_tokens);
    return size_t{0};
  };
  const auto look = [&](size_t n_pages) {
    const auto place = tails_.find(n_pages == 0 ? beginning : names[n_pages - 1]);
    if (place == tails_.end()) return;
    const std::span<const int32_t> rest =
        tokens.subspan(n_pages * static_cast<size_t>(page_tokens));
    for (const Tail& tail : place->second) {
      if (pages_at(tail.worker) != n_pages) continue;
      const auto same =
          static_cast<int32_t>(std::ranges::mismatch(rest, tail.tokens).in1 - rest.begin());
      // A whole page would be in `cached`, were it still there.
      if (same >= page_tokens || kMaxDivisor * same < page_tokens) continue;
      const auto there = std::ranges::find(found, tail.worker, &CachedPrefix::worker);
      if (there == found.end())
        found.push_back({.worker = tail.worker, .tokens = same});
      else
        there->tokens = std::max(there->tokens, same);
    }
  };
  look(0);
  std::vector<size_t> looked;
  for (const CachedPrefix& prefix : cached) {
    const auto n_pages = static_cast<size_t>(prefix.tokens / page_tokens);
    if (n_pages == 0 || n_pages > names.size() ||
        std::ranges::find(looked, n_pages) != looked.end())
      continue;
    looked.push_back(n_pages);
    look(n_pages);
  }
  return found;
}

void CachedTails::Leave(Incarnation worker) {
  for (auto& [before, tails] : tails_)
    std::erase_if(tails, [worker](const Tail& tail) { return tail.worker == worker; });
}

}  // namespace baton
