// The router's signed statement that KV of one request may land on one worker, which decodes the
// request or is the next rank of its relay. That worker answers a handoff's OPEN from the ticket
// alone, so the order of the router's own message and the OPEN does not matter. Plain values and
// pure functions, any thread.
//
// A ticket names both ends and has a limit in time, so that a stolen one is worth nothing at
// another worker, from another worker, or later. The limit is a time of the sink's own monotonic
// clock, which the sink tells the router with its load: no two clocks have to agree, and none may
// jump.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "common/ids.h"

namespace baton {

// Shared by all processes of a cluster; handed to children by the supervisor over a descriptor.
using ClusterKey = std::array<uint8_t, 32>;

// A ticket is good for one handoff, which fills a range of the pages of a promise. The sources of a
// promise have a ticket each, for ranges that together are all of its kv_pages. OPEN carries the
// fields in this order (kvtransfer/protocol/wire.h).
struct Ticket {
  TicketId id{};
  Epoch epoch = 0;
  RequestId request_id = 0;
  Incarnation source = 0, sink = 0;  // the worker that sends the KV, and the one that accepts it
  // The promise; all of its tickets have the same request, epoch, sink and counts of pages. The
  // ticket of the last range has the promise's id.
  TicketId promise{};
  int32_t kv_pages = 0;  // pages of the promise that get KV (the prompt's)
  // Pages promised in total: the prompt's and room to grow. 0: no lent pages of the sink, because
  // the sink is a relay rank that names kv_pages pages it holds (AwaitInflow).
  int32_t promise_pages = 0;
  int32_t first_page = 0, n_pages = 0;  // the range of the kv_pages that this ticket fills
  // The first of the kv_pages that the sink is expected to have. If there are any, the promise
  // waits for the sink's engine to hold them (LendHeld); what it holds is not sent.
  int32_t held_pages = 0;
  int64_t expires_us = 0;         // of the sink's monotonic clock: a first OPEN comes before it
  uint32_t key_id = 0;            // KeyIdOf the cluster key that signed it
  std::array<uint8_t, 32> mac{};  // HMAC-SHA256 of the fields above under the cluster key

  bool is_named() const { return promise_pages == 0; }
  // The last range brings the first token.
  bool is_last() const { return first_page + n_pages == kv_pages; }

  bool operator==(const Ticket&) const = default;
};

// Names a cluster key without telling anything of it, for errors.
uint32_t KeyIdOf(const ClusterKey& key);
// Sets ticket.key_id and ticket.mac.
void SignTicket(const ClusterKey& key, Ticket& ticket);
// Compares in constant time. False: forged, damaged, or signed with another cluster's key.
bool VerifyTicket(const ClusterKey& key, const Ticket& ticket);
// HMAC-SHA256 of bytes under the cluster key (also used for HELLO).
std::array<uint8_t, 32> ClusterMac(const ClusterKey& key, const void* bytes, size_t n_bytes);

}  // namespace baton
