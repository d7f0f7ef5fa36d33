// Links between two workers over which handoffs broke although both workers are here: cut, or
// closed to one of them, which no router can see. Plans leave such a link alone for a while; then
// one request tries it, and the others wait for what that one finds. Part of the Router, on its
// thread.
#pragma once

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
  // KV came over the link.
  void OnWhole(Incarnation source, Incarnation sink) { links_.erase({source, sink}); }
  void Leave(Incarnation worker);

  int size() const { return static_cast<int>(links_.size()); }
  // Sinks that `source` is not to hand over to now, ascending.
  std::vector<Incarnation> From(Incarnation source, absl::Time now) const;

 private:
  struct Link {
    absl::Duration pause = absl::ZeroDuration();
    absl::Time alone_until = absl::InfinitePast();
    bool is_tried = false;
  };
  std::map<std::pair<Incarnation, Incarnation>, Link> links_;
};

}  // namespace baton
