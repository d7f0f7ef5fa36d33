// Attempts that were cancelled, or refused, before all of them was here: what comes of them later
// is given back. Forgets the oldest requests beyond kRemembered. Engine thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"

namespace baton {

class CancelledAttempts {
 public:
  // The attempts 1..up_to.
  void Add(RequestId request, Epoch up_to) {
    const auto [it, is_new] = up_to_.try_emplace(request, up_to);
    it->second = std::max(it->second, up_to);
    if (!is_new) return;
    order_.push_back(request);
    if (order_.size() <= kRemembered) return;
    up_to_.erase(order_.front());
    order_.pop_front();
  }
  bool Has(RequestId request, Epoch epoch) const {
    const auto it = up_to_.find(request);
    return it != up_to_.end() && epoch <= it->second;
  }

 private:
  static constexpr size_t kRemembered = 65536;

  absl::flat_hash_map<RequestId, Epoch> up_to_;
  std::deque<RequestId> order_;  // in which they came
};

}  // namespace baton
