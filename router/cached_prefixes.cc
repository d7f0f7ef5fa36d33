#include "router/cached_prefixes.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace baton {

void CachedPrefixes::Join(const WorkerAnnounce& worker) {
  page_tokens_ = worker.page_tokens;
  short_range_tokens_ = worker.short_range_tokens;
  size_t place = 0;
  while (place < kMaxWorkers && places_.test(place)) ++place;
  if (!worker.reuses_kv || place == kMaxWorkers) return;
  places_.set(place);
  workers_.try_emplace(worker.incarnation, Told{.place = place, .max_pages = worker.pages_total});
}

void CachedPrefixes::Leave(Incarnation worker) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  Forget(&it->second);
  places_.reset(it->second.place);
  workers_.erase(it);
}

void CachedPrefixes::Forget(Told* told) {
  if (told->n_pages > told->n_passed)
    absl::erase_if(pages_, [told](auto& page) { return page.second.reset(told->place).none(); });
  told->n_pages = told->n_passed = 0;
  told->counts = false;
}

absl::StatusOr<bool> CachedPrefixes::OnPages(Incarnation worker, const CachedPages& told) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return false;
  Told& has = it->second;
  if (told.number <= has.number)
    return absl::InvalidArgumentError(absl::StrFormat(
        "cached_pages.number is %d after %d: it must rise", told.number, has.number));
  const bool is_next = told.number == has.number + 1;
  has.number = told.number;
  if (told.restart || !is_next) Forget(&has);
  if (told.restart) has.counts = true;
  if (!has.counts) return !is_next;
  for (const PageName& name : told.lost) {
    const auto page = pages_.find(name);
    if (page != pages_.end() && page->second.test(has.place)) {
      if (page->second.reset(has.place).none()) pages_.erase(page);
    } else if (--has.n_passed < 0) {
      return absl::InvalidArgumentError(
          "cached_pages.lost has a page that the worker did not have");
    }
    --has.n_pages;
  }
  for (const PageName& name : told.entered) {
    if (++has.n_pages > has.max_pages)
      return absl::InvalidArgumentError(absl::StrFormat(
          "cached_pages.entered has more pages than the worker's pool, which has %d",
          has.max_pages));
    const auto page = pages_.find(name);
    if (page != pages_.end() && page->second.test(has.place))
      return absl::InvalidArgumentError("cached_pages.entered has a page that was there already");
    if (page != pages_.end())
      page->second.set(has.place);
    else if (pages_.size() < max_pages_)
      pages_[name].set(has.place);
    else
      ++has.n_passed;
  }
  return false;
}

std::vector<PageName> CachedPrefixes::NamesOf(std::span<const int32_t> tokens,
                                              int64_t max_total_tokens, uint64_t salt) const {
  std::vector<PageName> names;
  Extend(tokens, max_total_tokens, salt, &names);
  return names;
}

void CachedPrefixes::Extend(std::span<const int32_t> tokens, int64_t max_total_tokens,
                            uint64_t salt, std::vector<PageName>* names) const {
  const auto page_tokens = static_cast<size_t>(page_tokens_);
  const bool is_long = short_range_tokens_ > 0 && max_total_tokens > short_range_tokens_;
  PageName name = names->empty() ? PageName::Beginning(salt, is_long) : names->back();
  for (; tokens.size() > page_tokens; tokens = tokens.subspan(page_tokens))
    names->push_back(name = namer_.After(name, tokens.first(page_tokens)));
}

std::vector<CachedPrefix> CachedPrefixes::Find(std::span<const PageName> names) const {
  std::vector<CachedPrefix> cached;
  Workers have = places_;
  for (size_t n = 0; have.any(); ++n) {
    const auto page = n < names.size() ? pages_.find(names[n]) : pages_.end();
    const Workers go_on = page != pages_.end() ? have & page->second : Workers();
    const Workers stop = have & ~go_on;
    if (n > 0 && stop.any())
      for (const auto& [worker, told] : workers_)
        if (stop.test(told.place))
          cached.push_back({.worker = worker, .tokens = static_cast<int32_t>(n) * page_tokens_});
    have = go_on;
  }
  std::sort(cached.begin(), cached.end(),
            [](const auto& a, const auto& b) { return a.worker < b.worker; });
  return cached;
}

std::vector<PageName> CachedPrefixes::PagesOf(Incarnation worker) const {
  std::vector<PageName> names;
  if (const auto it = workers_.find(worker); it != workers_.end())
    for (const auto& [name, workers] : pages_)
      if (workers.test(it->second.place)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace baton
