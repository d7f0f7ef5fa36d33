// Remembers how handoffs ended at this sink, so that a late or repeated OPEN, COMMIT or CANCEL gets
// the same answer and a commit happens once even if its answer was lost. Bounded: the oldest
// entries are forgotten, and with them all tickets that expire no later: so none of them is good
// twice. Link thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kvtransfer/protocol/wire.h"

namespace baton {

class Tombstones {
 public:
  struct Entry {
    Epoch epoch = 0;
    absl::Status status;     // OK: committed
    int64_t expires_us = 0;  // of its ticket; 0: unknown
  };
  static constexpr size_t kMaxEntries = 65'536;

  // A later epoch replaces an earlier one; otherwise the first outcome stands.
  void Add(const TicketId& id, Epoch epoch, absl::Status status, int64_t expires_us = 0) {
    auto [it, is_new] = entries_.try_emplace(id);
    if (!is_new && it->second.epoch >= epoch) return;
    it->second = {epoch, std::move(status), expires_us};
    if (!is_new) return;
    order_.push_back(id);
    if (order_.size() > kMaxEntries) {
      const auto oldest = entries_.find(order_.front());
      forgotten_us_ = std::max(forgotten_us_, oldest->second.expires_us);
      entries_.erase(oldest);
      order_.pop_front();
    }
  }
  // Entry of this epoch or a later one, valid until the next Add; nullptr: none.
  const Entry* Find(const TicketId& id, Epoch epoch) const {
    const auto it = entries_.find(id);
    return it != entries_.end() && it->second.epoch >= epoch ? &it->second : nullptr;
  }
  // Tickets that expire until then may have been here, and are forgotten.
  int64_t forgotten_us() const { return forgotten_us_; }
  // Answers OPEN, COMMIT or CANCEL of a handoff that is not open: tells how it ended.
  wire::Message AnswerTo(const wire::Handoff& handoff) const {
    const Entry* entry = Find(handoff.ticket_id, handoff.epoch);
    if (entry == nullptr || (entry->status.ok() && entry->epoch != handoff.epoch))
      return wire::FromStatus<wire::Cancelled>(handoff,
                                               absl::AbortedError("no such handoff is open here"));
    if (entry->status.ok()) return wire::Committed{handoff};
    return wire::FromStatus<wire::Cancelled>(handoff, entry->status);
  }

 private:
  absl::flat_hash_map<TicketId, Entry> entries_;
  std::deque<TicketId> order_;
  int64_t forgotten_us_ = 0;
};

}  // namespace baton
