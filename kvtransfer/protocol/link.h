// The narrow interface under the handoff protocol: control messages, and chunks that the receiver
// accepts into memory of its choice. Implementations: UcxLink over UCX; in tests MemLink, inside
// one process. The lab's PacedLink wraps another link.
//
// Contract, the same for every link:
//  - Messages and announcements of one connection arrive in the order they were sent, whole or not
//    at all. Nothing else is promised: only an answer of the peer's protocol proves delivery.
//  - Announce: the peer learns of the chunk; no byte moves before the peer accepts it. `payload` is
//    read until ChunkSent, which does not prove delivery (a refusal ends with ChunkSent too).
//  - Accept: `destination` is written until ChunkLanded and never afterwards, whatever happens.
//  - A connection ends by Close (no event) or ConnectionLost. Chunks announced on it and not
//    accepted are gone; chunks that this end accepted or announced still report soon, before or
//    after ConnectionLost: ok only if all bytes had landed.
//  - Calls never fail: trouble arrives as events, always later, from Poll.
// One thread owns a link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "kvtransfer/protocol/wire.h"

namespace baton {

using ConnectionId = uint64_t;    // never reused within a link, never 0
using AnnouncementId = uint64_t;  // a chunk the peer offers
// Chosen by the caller: unique among its announced chunks, and among its accepted ones.
using OperationId = uint64_t;

struct ConnectionAccepted {  // a peer connected to this end's address
  ConnectionId connection = 0;
  std::string from{};  // host:port of the peer
};
struct MessageArrived {
  ConnectionId connection = 0;
  std::string bytes;
};
// A peer offers a chunk of `length` bytes; `header` is its ChunkHeader, encoded.
struct ChunkAnnounced {
  ConnectionId connection = 0;
  AnnouncementId announcement = 0;
  std::string header;
  uint64_t length = 0;
};
// The link no longer reads the payload of a chunk announced by this end.
struct ChunkSent {
  OperationId operation = 0;
};
// An accepted chunk is over: its bytes are in place, or will not come.
struct ChunkLanded {
  OperationId operation = 0;
  bool ok = false;  // false: the content of destination is undefined
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

  virtual const std::string& address() const = 0;  // address for peers to Connect to
  // Registers memory of payloads and destinations, before the first connection; called once for
  // each region. The memory must outlive the link.
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

  // Moves all pending events to the end of *events; false: there were none.
  virtual bool Poll(std::vector<LinkEvent>* events) = 0;
  // Called before a sleep. True: wake_fd turns readable at the next event, so the owner may sleep
  // on it. False: Poll again first.
  virtual bool Arm() = 0;
  virtual int wake_fd() const = 0;
  // True if nothing is posted and no connection is closing.
  virtual bool idle() const = 0;
};

// Called once, on the thread that will own the link. An error: no link can be had, and why.
using LinkMaker = std::function<absl::StatusOr<std::unique_ptr<Link>>()>;

}  // namespace baton
