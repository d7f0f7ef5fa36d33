#include "router/cached_tails.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr int kMaxDivisor = 8;  // workers copy a part of a page if it is one in so many at least

}  // namespace

void CachedTails::Enter(Incarnation worker, const PageName& before, std::vector<int32_t> tokens) {
  if (tokens.empty()) return;
  std::vector<Tail>& tails = tails_[before];
  const auto of_worker = [worker](const Tail& tail) { return tail.worker == worker; };
  if (const auto same = std::ranges::find_if(
          tails, [&](const Tail& tail) { return of_worker(tail) && tail.tokens == tokens; });
      same != tails.end())
    tails.erase(same);
  if (std::ranges::count_if(tails, of_worker) == kOfWorker)
    tails.erase(std::ranges::find_if(tails, of_worker));
  ++n_entered_;
  tails.push_back({.worker = worker, .number = n_entered_, .tokens = std::move(tokens)});
  order_.push_back({.before = before, .worker = worker, .number = n_entered_});
  if (order_.size() <= kMaxTails) return;
  const Entered oldest = order_.front();
  order_.pop_front();
  const auto place = tails_.find(oldest.before);
  if (place == tails_.end()) return;
  const auto tail = std::ranges::find(place->second, oldest.number, &Tail::number);
  if (tail != place->second.end()) place->second.erase(tail);
  if (place->second.empty()) tails_.erase(place);
}

std::vector<CachedPrefix> CachedTails::Find(const PageName& beginning,
                                            std::span<const PageName> names,
                                            std::span<const int32_t> tokens,
                                            std::span<const CachedPrefix> cached,
                                            int32_t page_tokens) const {
  std::vector<CachedPrefix> found;
  if (page_tokens <= 0) return found;
  const auto pages_at = [&](Incarnation worker) {
    const auto there = std::ranges::lower_bound(cached, worker, {}, &CachedPrefix::worker);
    const bool has_some = there != cached.end() && there->worker == worker;
    return has_some ? static_cast<size_t>(there->tokens / page_tokens) : size_t{0};
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
  absl::erase_if(tails_, [worker](auto& place) {
    std::erase_if(place.second, [worker](const Tail& tail) { return tail.worker == worker; });
    return place.second.empty();
  });
  std::erase_if(order_, [worker](const auto& each) { return each.worker == worker; });
}

}  // namespace baton
