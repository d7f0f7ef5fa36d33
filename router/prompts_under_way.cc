#include "router/prompts_under_way.h"

#include <utility>

#include "common/check.h"

namespace baton {

void PromptsUnderWay::Enter(RequestId id, const std::vector<PageName>& pages, absl::Time done_at) {
  const bool is_new = prompts_.try_emplace(id, Prompt{pages, done_at}).second;
  BATON_CHECK(is_new);
  for (const PageName& page : pages) leaders_.try_emplace(page, id);
}

void PromptsUnderWay::Leave(RequestId id) {
  const auto entered = prompts_.extract(id);
  if (entered.empty()) return;
  for (const PageName& page : entered.mapped().pages)
    if (const auto leader = leaders_.find(page); leader != leaders_.end() && leader->second == id)
      leaders_.erase(leader);
  if (const auto followers = followers_.extract(id); !followers.empty())
    freed_.insert(freed_.end(), followers.mapped().begin(), followers.mapped().end());
}

PromptsUnderWay::Leader PromptsUnderWay::Find(const std::vector<PageName>& pages) const {
  Leader found;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto leader = leaders_.find(pages[i]);
    if (leader == leaders_.end()) break;
    found = {.id = leader->second, .n_pages = i + 1, .done_at = {}};
  }
  if (found.id != 0) found.done_at = prompts_.at(found.id).done_at;
  return found;
}

std::vector<RequestId> PromptsUnderWay::TakeFreed() { return std::exchange(freed_, {}); }

}  // namespace baton
