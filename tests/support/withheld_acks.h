// A sink that receives and never acknowledges: what its tap does to the messages it sends and gets.
#pragma once

#include <string>
#include <variant>

#include "tests/support/tapped_link.h"

namespace baton {

// The peers of this end see no ACK of chunks; this end sees no COMMIT, so that it never completes a
// handoff either, which would be an acknowledgement too. Before the first connection.
inline void WithholdAcks(TappedLink* tap) {
  tap->on_send = [](std::string* message) {
    const absl::StatusOr<wire::Message> sent = wire::Decode(*message);
    if (sent.ok() && std::holds_alternative<wire::Ack>(*sent)) message->clear();
  };
  tap->drops_event = [](const LinkEvent& event) {
    const auto* message = std::get_if<MessageArrived>(&event);
    if (message == nullptr) return false;
    const absl::StatusOr<wire::Message> arrived = wire::Decode(message->bytes);
    return arrived.ok() && std::holds_alternative<wire::Commit>(*arrived);
  };
}

}  // namespace baton
