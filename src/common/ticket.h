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
  int32_t kv_pages = 0;  // pages the handoff fills (the prompt's)
  // Pages promised in all: the prompt's and room to grow; 0: the sink is a relay rank, which names
  // pages it holds (AwaitInflow).
  int32_t promise_pages = 0;
  std::array<uint8_t, 32> mac{};  // HMAC-SHA256 of the fields above under the cluster key

  bool operator==(const Ticket&) const = default;
};

// Sets ticket.mac.
void SignTicket(const ClusterKey& key, Ticket& ticket);
// Constant time. False: forged, damaged, or another cluster's key.
bool VerifyTicket(const ClusterKey& key, const Ticket& ticket);
// HMAC-SHA256 of any bytes under the cluster key (HELLO uses it too).
std::array<uint8_t, 32> ClusterMac(const ClusterKey& key, const void* bytes, size_t n_bytes);

}  // namespace baton
