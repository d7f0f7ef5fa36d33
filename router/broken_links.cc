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

bool BrokenLinks::Link::was_tried_in_vain() const { return pause > kFirstPause; }

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
  OfEnds(source, sink,
         [now](Link& link) { link.alone_until = std::max(link.alone_until, now + kMaxTrial); });
}

void BrokenLinks::OnWhole(Incarnation source, Incarnation sink) {
  if (links_.erase({source, sink}) == 0) return;
  OfEnds(source, sink, [](Link& link) { link.alone_until = absl::InfinitePast(); });
}

void BrokenLinks::OfEnds(Incarnation source, Incarnation sink,
                         const std::function<void(Link&)>& visit) {
  for (auto& [ends, link] : links_)
    if (ends.first == source || ends.second == sink) visit(link);
}

void BrokenLinks::Leave(Incarnation worker) {
  std::erase_if(links_, [worker](const auto& link) {
    return link.first.first == worker || link.first.second == worker;
  });
}

int BrokenLinks::n_tried_in_vain() const {
  return static_cast<int>(std::count_if(links_.begin(), links_.end(), [](const auto& link) {
    return link.second.was_tried_in_vain();
  }));
}

template <typename Counts>
std::vector<Incarnation> BrokenLinks::SinksOf(Incarnation source, const Counts& counts) const {
  std::vector<Incarnation> sinks;
  for (auto it = links_.lower_bound({source, 0}); it != links_.end() && it->first.first == source;
       ++it)
    if (counts(it->second)) sinks.push_back(it->first.second);
  return sinks;
}

std::vector<Incarnation> BrokenLinks::TriedInVainFrom(Incarnation source) const {
  return SinksOf(source, [](const Link& link) { return link.was_tried_in_vain(); });
}

std::vector<Incarnation> BrokenLinks::From(Incarnation source, bool may_try, absl::Time now) const {
  return SinksOf(source, [&](const Link& link) { return !may_try || now < link.alone_until; });
}

}  // namespace baton
