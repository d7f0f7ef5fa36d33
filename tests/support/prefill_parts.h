// Parts of a PrefillRequest by their role in a relay: the last slice, the handoff to the next rank,
// the push to the decode worker.
#pragma once

#include <algorithm>
#include <vector>

#include "proto/messages.h"

namespace baton {

// The handoff of a slice to the next rank; all zero: there is none.
inline KvOutput HopOf(const SliceSpec& slice) {
  for (const KvOutput& output : slice.outputs)
    if (output.ticket.is_named()) return output;
  return {};
}
// The handoff of a slice to the decode worker; all zero: there is none.
inline KvOutput PushOf(const SliceSpec& slice) {
  for (const KvOutput& output : slice.outputs)
    if (!output.ticket.is_named()) return output;
  return {};
}
inline const SliceSpec& LastSlice(const PrefillRequest& request) { return request.slices.back(); }
// The main handoff of a part: to the next rank for a head, else to the decode worker.
inline KvOutput MainOf(const PrefillRequest& request) {
  const std::vector<KvOutput>& outputs = LastSlice(request).outputs;
  return outputs.empty() ? KvOutput{} : outputs.front();
}
inline const Ticket& TicketOf(const PrefillRequest& request) {
  static const Ticket none;
  return LastSlice(request).outputs.empty() ? none : LastSlice(request).outputs.front().ticket;
}
// Tokens before the last slice, if KV of some of them comes by a handoff.
inline int32_t InflowTokens(const PrefillRequest& request) {
  return LastSlice(request).inflow == TicketId{} ? 0 : LastSlice(request).begin;
}
// Makes a request for a prompt alone: one slice, for `peer` or nobody.
inline void SetWhole(PrefillRequest* request, const Ticket& ticket, const TransferPeer& peer) {
  request->slices = {{.begin = 0, .end = static_cast<int32_t>(request->tokens.size())}};
  if (peer.incarnation != 0)
    request->slices.front().outputs = {{.ticket = ticket, .peer = peer, .first_page = 0}};
}

// Makes a head of a prompt's request, whose KV is handed to the next rank as `handoff`.
inline void SetHead(PrefillRequest* request, const TicketId& handoff) {
  request->wants_first_token = false;
  Ticket& ticket = request->slices.back().outputs.front().ticket;
  ticket.id = ticket.promise = handoff;
  ticket.promise_pages = 0;
}

}  // namespace baton
