#include "router/broken_links.h"

#include <algorithm>

namespace baton {
namespace {

// A request that tries a link in vain loses some 4 s (docs/HANDOFF.md, peer_timeout), so the first
// pause is of that size, and the longest makes such losses rare.
constexpr absl::Duration kFirstPause = absl::Seconds(5), kMaxPause = absl::Minutes(1);
// Whoever tries has not told what it found for so long: the next one tries.
constexpr absl::Duration kMaxTrial = absl::Seconds(15);

}  // namespace

std::optional<absl::Duration> BrokenLinks::OnBroken(Incarnation source, Incarnation sink,
                                                    absl::Time now) {
  const auto [it, is_new] = links_.try_emplace({source, sink}, Link{.pause = kFirstPause});
  Link& link = it->second;
  // Others that took the link before it was known to be broken tell nothing new.
  if (!is_new && !link.is_tried) return std::nullopt;
  if (!is_new) link.pause = std::min(2 * link.pause, kMaxPause);
  link.is_tried = false;
  link.alone_until = now + link.pause;
  return link.pause;
}

void BrokenLinks::OnUsed(Incarnation source, Incarnation sink, absl::Time now) {
  const auto it = links_.find({source, sink});
  if (it == links_.end() || now < it->second.alone_until) return;
  it->second.is_tried = true;
  it->second.alone_until = now + kMaxTrial;
}

void BrokenLinks::Leave(Incarnation worker) {
  std::erase_if(links_, [worker](const auto& link) {
    return link.first.first == worker || link.first.second == worker;
  });
}

std::vector<Incarnation> BrokenLinks::From(Incarnation source, absl::Time now) const {
  std::vector<Incarnation> sinks;
  for (auto it = links_.lower_bound({source, 0}); it != links_.end() && it->first.first == source;
       ++it)
    if (now < it->second.alone_until) sinks.push_back(it->first.second);
  return sinks;
}

}  // namespace baton
