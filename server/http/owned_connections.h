// Connections by their owner: who was admitted last on each, such as an API key. Loop's thread.
#pragma once

#include <cstdint>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"

namespace baton {

class HttpConnection;

class OwnedConnections {
 public:
  // Where a connection stands; it must Leave before it goes.
  struct Place {
    uint64_t owner = 0;  // 0: nobody, and nothing is counted
    std::optional<std::list<HttpConnection*>::iterator> idle;
  };

  explicit OwnedConnections(int max) : max_(max) {}

  bool HasRoom(uint64_t owner) const {
    const auto of_this = of_owner_.find(owner);
    return of_this == of_owner_.end() || of_this->second.n < max_;
  }
  // Returns who waits for a request, the idlest first. The owner has some connections.
  std::list<HttpConnection*>& IdleOf(uint64_t owner) { return of_owner_.at(owner).idle; }
  // A connection that is not idle changes its owner.
  void Join(uint64_t owner, Place* place) {
    Leave(place);
    place->owner = owner;
    ++of_owner_[owner].n;
  }
  void SetIdle(bool idle, HttpConnection* connection, Place* place) {
    if (place->owner == 0 || idle == place->idle.has_value()) return;
    std::list<HttpConnection*>& of_this = of_owner_.at(place->owner).idle;
    if (idle) {
      place->idle = of_this.insert(of_this.end(), connection);
    } else {
      of_this.erase(*place->idle);
      place->idle.reset();
    }
  }
  void Leave(Place* place) {
    if (place->owner == 0) return;
    const auto of_this = of_owner_.find(place->owner);
    if (place->idle) of_this->second.idle.erase(*place->idle);
    if (--of_this->second.n == 0) of_owner_.erase(of_this);
    *place = {};
  }

 private:
  struct Owned {
    int n = 0;
    std::list<HttpConnection*> idle;
  };
  const int max_;
  absl::flat_hash_map<uint64_t, Owned> of_owner_;
};

}  // namespace baton
