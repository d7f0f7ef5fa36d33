// The router's signed statement that one request's KV may land on one decode worker. The decode
// worker answers a handoff's OPEN from the ticket alone, so it does not matter whether the router's
// own message or the OPEN arrives first.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/ids.h"

namespace baton {

// Shared by all processes of a cluster; handed to children by the supervisor over a descriptor.
using ClusterKey = std::array<uint8_t, 32>;

struct Ticket {
  TicketId id{};
  Epoch epoch = 0;
  RequestId request_id = 0;
  Incarnation sink = 0;  // the decode worker this ticket is good for
  int32_t kv_pages = 0;  // pages of the handoff (the prompt's)
  // Pages promised in all: the prompt's and room to grow; 0: nothing of the sink's stock, as the
  // sink is a relay rank that names pages it holds (AwaitInflow), or this is a part.
  int32_t promise_pages = 0;
  // Not zero: this handoff is a part of that one (the main one, of the same epoch and sink) from
  // another source: its pages are the main one's from first_page on, and promised with them.
  TicketId part_of{};
  // A main one's: it brings its pages from here on itself, parts bring those before.
  int32_t first_page = 0;
  std::array<uint8_t, 32> mac{};  // HMAC-SHA256 of the fields above under the cluster key

  bool is_part() const { return part_of != TicketId{}; }
  bool is_inflow() const { return promise_pages == 0 && !is_part(); }
  // The first of kv_pages that this handoff itself brings.
  int32_t first_own_page() const { return is_part() ? 0 : first_page; }

  bool operator==(const Ticket&) const = default;
};

// Sets ticket.mac.
void SignTicket(const ClusterKey& key, Ticket& ticket);
// Constant time. False: forged, damaged, or another cluster's key.
bool VerifyTicket(const ClusterKey& key, const Ticket& ticket);
// HMAC-SHA256 of any bytes under the cluster key (HELLO uses it too).
std::array<uint8_t, 32> ClusterMac(const ClusterKey& key, const void* bytes, size_t n_bytes);

}  // namespace baton
