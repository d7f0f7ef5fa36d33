// Bytes that the connections of a server hold, all together and by address, against a limit of
// each. A plain object, on the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"

namespace baton {

class ByteBudget {
 public:
  ByteBudget(size_t max, size_t max_per_address) : max_(max), max_per_address_(max_per_address) {}

  // A connection of `peer` (0: no address, so that only the limit of all counts) holds so many
  // bytes from now on, and no longer *held.
  void Hold(uint64_t peer, size_t bytes, size_t* held) {
    if (bytes == *held) return;
    total_ += bytes - *held;
    if (peer != 0) {
      const auto of_this = of_peer_.try_emplace(peer, 0).first;
      of_this->second += bytes - *held;
      if (of_this->second == 0) of_peer_.erase(of_this);
    }
    *held = bytes;
  }
  size_t total() const { return total_; }
  size_t of(uint64_t peer) const {  // 0 also for no address
    const auto of_this = of_peer_.find(peer);
    return of_this == of_peer_.end() ? 0 : of_this->second;
  }
  bool IsOver() const { return total_ > max_; }
  bool IsOver(uint64_t peer) const { return of(peer) > max_per_address_; }  // this address

 private:
  const size_t max_, max_per_address_;
  size_t total_ = 0;
  absl::flat_hash_map<uint64_t, size_t> of_peer_;  // without those that hold nothing
};

}  // namespace baton
