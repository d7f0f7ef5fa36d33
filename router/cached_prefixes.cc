#include "router/cached_prefixes.h"

#include <algorithm>
#include <span>

namespace baton {

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

// A rank has all up to the end of its last slice.
void CachedPrefixes::OnComputed(const Plan& plan, const AttemptSpec& spec,
                                const std::vector<uint64_t>& pages) {
  const std::vector<int32_t> ends = plan.SliceEnds(spec);
  for (size_t slice = ends.size() - plan.n_ranks(); slice < ends.size(); ++slice) {
    const auto memory = memories_.find(plan.WorkerOf(slice));
    if (memory == memories_.end()) continue;
    const auto n_pages = static_cast<size_t>(ends[slice] / page_tokens_);
    memory->second.Add(std::span(pages).first(std::min(n_pages, pages.size())));
  }
}

void CachedPrefixes::OnFound(const CachedPrefix& hoped, const std::vector<uint64_t>& pages,
                             int32_t found_tokens) {
  const auto memory = memories_.find(hoped.worker);
  if (memory == memories_.end() || found_tokens >= hoped.tokens) return;
  memory->second.Lacks(pages[static_cast<size_t>(found_tokens / page_tokens_)], hoped.adds);
}

}  // namespace baton
