// Links between two workers over which handoffs broke although both workers are here: cut, or
// closed to one of them, which no router can see. Plans leave such a link alone for a while; then
// one request tries it, and the others leave all links of its two ends alone until it has found
// out: who tries in vain loses seconds. Part of the Router, on its thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/messages.h"

namespace baton {

class BrokenLinks {
 public:
  // A handoff from `source` to `sink` broke. Returns for how long the link is left alone, if it was
  // not already: longer each time that it was tried in vain.
  std::optional<absl::Duration> OnBroken(Incarnation source, Incarnation sink, absl::Time now);
  // An attempt was sent that uses the link. If the link has been left alone for long enough, this
  // is the one that tries it.
  void OnUsed(Incarnation source, Incarnation sink, absl::Time now);
  // KV came over the link. Others of the same ends may be tried at once.
  void OnWhole(Incarnation source, Incarnation sink);
  void Leave(Incarnation worker);

  // Links that were tried in vain, and not since in success.
  int n_tried_in_vain() const;
  // The sinks of those that begin at `source`, ascending.
  std::vector<Incarnation> TriedInVainFrom(Incarnation source) const;
  // Sinks that `source` is not to hand over to, ascending; may_try: less those to be tried now.
  std::vector<Incarnation> From(Incarnation source, bool may_try, absl::Time now) const;

 private:
  struct Link {
    absl::Duration pause = absl::ZeroDuration();
    absl::Time alone_until = absl::InfinitePast();
    bool is_tried = false;
    bool was_tried_in_vain() const;
  };
  // The sinks of the links from `source` that count.
  template <typename Counts>
  std::vector<Incarnation> SinksOf(Incarnation source, const Counts& counts) const;
  // Visits the links with one of these ends.
  void OfEnds(Incarnation source, Incarnation sink, const std::function<void(Link&)>& visit);

  std::map<std::pair<Incarnation, Incarnation>, Link> links_;
};

}  // namespace baton
