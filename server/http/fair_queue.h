// A queue in which senders take turns: whoever has put in thousands waits behind one of each other
// sender. A plain object.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace baton {

template <typename T>
class FairQueue {
 public:
  bool empty() const { return turns_.empty(); }
  void Push(uint64_t sender, T item) {
    std::deque<T>& of_sender = items_[sender];
    if (of_sender.empty()) turns_.push_back(sender);
    of_sender.push_back(std::move(item));
  }
  // Not empty before.
  T Pop() {
    const uint64_t sender = turns_.front();
    turns_.pop_front();
    const auto found = items_.find(sender);
    T item = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
      items_.erase(found);
    } else {
      turns_.push_back(sender);
    }
    return item;
  }
  void Clear() {
    turns_.clear();
    items_.clear();
  }

 private:
  std::deque<uint64_t> turns_;  // senders that have items, the next one first
  absl::flat_hash_map<uint64_t, std::deque<T>> items_;  // by sender, none without items
};

}  // namespace baton
