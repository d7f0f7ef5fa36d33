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
  if (pages_[name]++ == 0 && lost_.erase(name) == 0) entered_.insert(name);
}

void PageLog::Lose(const PageName& name) {
  const auto page = pages_.find(name);
  BATON_CHECK(page != pages_.end());
  if (--page->second > 0) return;
  pages_.erase(page);
  if (entered_.erase(name) == 0) lost_.insert(name);
}

void PageLog::Restart() {
  restart_ = true;
  lost_.clear();
  for (const auto& [name, n] : pages_) entered_.insert(name);
}

CachedPages PageLog::Take() {
  CachedPages told{.number = ++n_messages_, .restart = std::exchange(restart_, false)};
  Move(&lost_, CachedPages::kMaxNames, &told.lost);
  Move(&entered_, CachedPages::kMaxNames - told.lost.size(), &told.entered);
  return told;
}

}  // namespace baton
