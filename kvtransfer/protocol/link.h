// The narrow seam under the handoff protocol: control messages, and chunks that the receiver
// accepts into memory of its own choice. UcxLink carries it over UCX, MemLink inside one process.
//
// Contract, the same for every link:
//  - Messages and announcements of one connection arrive in the order they were sent, whole or not
//    at all. Nothing else is promised: only an answer of the peer's protocol proves delivery.
//  - Announce: the peer learns of the chunk, and no byte moves before it accepts. `payload` is read
//    until ChunkSent, which says nothing about delivery (a refusal ends the same way).
//  - Accept: `destination` is written until ChunkLanded, never after it, whatever happened.
//  - A connection ends by Close (no event) or ConnectionLost. Chunks announced on it and not
//    accepted are gone; those accepted or announced by this end still report, soon, before or after
//    the loss itself: ok only if all of it had landed.
//  - Calls never fail: trouble arrives as events, always later, from Poll.
// One thread owns a link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "kvtransfer/protocol/wire.h"

namespace baton {

using ConnectionId = uint64_t;    // never reused within a link, never 0
using AnnouncementId = uint64_t;  // a chunk the peer offers
using OperationId = uint64_t;     // chosen by the caller of Announce and Accept

struct ConnectionAccepted {  // a peer connected to this end's address
  ConnectionId connection = 0;
};
struct MessageArrived {
  ConnectionId connection = 0;
  std::string bytes;
};
struct ChunkAnnounced {
  ConnectionId connection = 0;
  AnnouncementId announcement = 0;
  std::string header;
  uint64_t length = 0;
};
struct ChunkSent {
  OperationId operation = 0;
};
struct ChunkLanded {
  OperationId operation = 0;
  bool ok = false;  // false: destination holds anything
};
struct ConnectionLost {
  ConnectionId connection = 0;
  absl::Status status;
};
using LinkEvent = std::variant<ConnectionAccepted, MessageArrived, ChunkAnnounced, ChunkSent,
                               ChunkLanded, ConnectionLost>;

class Link {
 public:
  virtual ~Link() = default;

  virtual const std::string& address() const = 0;  // where peers Connect to
  // Memory that payloads and destinations will lie in, before the first connection.
  virtual void Register(std::byte* base, int64_t bytes) = 0;

  virtual ConnectionId Connect(const std::string& address) = 0;
  virtual void Send(ConnectionId connection, std::string message) = 0;
  virtual void Announce(ConnectionId connection, OperationId operation,
                        const wire::ChunkHeaderBytes& header, const std::byte* payload,
                        uint64_t length) = 0;
  // `destination` has room for the announced length. An announcement is accepted or refused once.
  virtual void Accept(AnnouncementId announcement, OperationId operation,
                      std::byte* destination) = 0;
  virtual void Refuse(AnnouncementId announcement) = 0;
  virtual void Close(ConnectionId connection) = 0;

  // Moves what has happened to the end of *events; false: nothing has.
  virtual bool Poll(std::vector<LinkEvent>* events) = 0;
  // True: wake_fd turns readable at the next event, sleep on it. False: Poll again first.
  virtual bool Arm() = 0;
  virtual int wake_fd() const = 0;
  // Nothing is posted and no connection is closing.
  virtual bool idle() const = 0;
};

}  // namespace baton
