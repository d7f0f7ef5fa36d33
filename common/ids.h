// Ids of objects that cross processes: random or counted, never reused. Plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace baton {

using RequestId = uint64_t;    // minted by the router
using Epoch = uint32_t;        // attempt at a request: 1, 2, ...; raised by every dispatch
using Incarnation = uint64_t;  // one life of a process: random at start, never 0

// Id of a promise of pages to one request; 128 random bits, minted by the router.
struct TicketId {
  uint64_t high = 0, low = 0;
  auto operator<=>(const TicketId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const TicketId& id) {
    return H::combine(std::move(h), id.high, id.low);
  }
};

// 64 bits from the system's random device (getrandom), never 0. Any thread, but called by shells
// only: cores get ids as input.
uint64_t RandomId();

}  // namespace baton
