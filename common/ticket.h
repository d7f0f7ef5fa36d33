// The router's signed statement that KV of one request may land on one decode worker. The decode
// worker answers a handoff's OPEN from the ticket alone, so the order of the router's own message
// and the OPEN does not matter. Plain values and pure functions, any thread.
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
  Incarnation sink = 0;  // the decode worker that accepts this ticket
  int32_t kv_pages = 0;  // pages of the handoff (the prompt's)
  // Pages promised in total: the prompt's and room to grow. 0: no lent pages of the sink, because
  // the sink is a relay rank that names pages it holds (AwaitInflow), or because this is a part.
  int32_t promise_pages = 0;
  // Not zero: this handoff is a part, from another source, of the named main handoff (same epoch
  // and sink). Its pages are the main handoff's pages from first_page on, and are promised
  // together.
  TicketId part_of{};
  // Main handoff with parts: it brings its own pages from here on; parts bring the earlier pages.
  int32_t first_page = 0;
  std::array<uint8_t, 32> mac{};  // HMAC-SHA256 of the fields above under the cluster key

  bool is_part() const { return part_of != TicketId{}; }
  bool is_inflow() const { return promise_pages == 0 && !is_part(); }
  // First of kv_pages that this handoff itself brings.
  int32_t first_own_page() const { return is_part() ? 0 : first_page; }

  bool operator==(const Ticket&) const = default;
};

// Sets ticket.mac.
void SignTicket(const ClusterKey& key, Ticket& ticket);
// Compares in constant time. False: forged, damaged, or signed with another cluster's key.
bool VerifyTicket(const ClusterKey& key, const Ticket& ticket);
// HMAC-SHA256 of bytes under the cluster key (also used for HELLO).
std::array<uint8_t, 32> ClusterMac(const ClusterKey& key, const void* bytes, size_t n_bytes);

}  // namespace baton
