#include "engine/kv/page_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

void Move(absl::btree_set<PageName>* from, size_t max, std::vector<PageName>* to) {
  const auto end =
      std::next(from->begin(), static_cast<std::ptrdiff_t>(std::min(max, from->size())));
  to->assign(from->begin(), end);
  from->erase(from->begin(), end);
}

}  // namespace

void PageLog::Enter(const PageName& name) {
  if (pages_[name]++ > 0) return;
  for (auto& [router, reader] : readers_)
    if (reader.lost.erase(name) == 0) reader.entered.insert(name);
}

void PageLog::Lose(const PageName& name) {
  const auto page = pages_.find(name);
  BATON_CHECK(page != pages_.end());
  if (--page->second > 0) return;
  pages_.erase(page);
  for (auto& [router, reader] : readers_)
    if (reader.entered.erase(name) == 0) reader.lost.insert(name);
}

void PageLog::Restart(RouterId router) {
  Reader& reader = readers_[router];
  reader.restart = true;
  reader.lost.clear();
  for (const auto& [name, n] : pages_) reader.entered.insert(name);
}

void PageLog::Leave(RouterId router) { readers_.erase(router); }

bool PageLog::is_told(RouterId router) const {
  const auto found = readers_.find(router);
  if (found == readers_.end()) return true;
  const Reader& reader = found->second;
  return !reader.restart && reader.lost.empty() && reader.entered.empty();
}

CachedPages PageLog::Take(RouterId router) {
  Reader& reader = readers_.at(router);
  CachedPages told{.number = ++reader.n_messages, .restart = std::exchange(reader.restart, false)};
  Move(&reader.lost, CachedPages::kMaxNames, &told.lost);
  Move(&reader.entered, CachedPages::kMaxNames - told.lost.size(), &told.entered);
  return told;
}

}  // namespace baton
