// The PeerConnections of one worker over a RecordingLink, with ready connections to peers that
// exist only in the test. The pool has 16 pages with planes of 60 and 40 bytes.
#pragma once

#include <functional>

#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/peer_connections.h"
#include "tests/kvtransfer/recording_link.h"

namespace baton {

struct ConnectedPeers {
  static constexpr Incarnation kSelf = 2;
  static constexpr ConnectionId kFirstIncoming = 1'000;

  // gap: bytes between the planes; with one, each chunk of both planes needs a slot.
  explicit ConnectedPeers(int64_t gap = 0, int32_t n_slots = 2)
      : pool(16, {60, 40}, gap),
        setup(MakeSetup(kSelf, pool.view(), &link, n_slots)),
        connections(&setup) {}

  void Receive(ConnectionId connection, const wire::Message& message, int64_t now_us = 0) {
    connections.On(MessageArrived{connection, wire::Encode(message)}, now_us);
  }
  // Returns the HELLO that answers the challenge `said`.
  wire::Hello Hello(Incarnation from, std::string_view said) const {
    uint32_t digest = 0;
    for (const PoolPlane& plane : pool.view().planes)
      digest = ExtendCrc32c(digest, &plane.bytes, sizeof(plane.bytes));
    wire::Hello hello{.from = from,
                      .to = kSelf,
                      .nonce = {9},
                      .key_id = KeyIdOf(kTestKey),
                      .identity = {.model_fingerprint = 77,
                                   .numerics_id = "cpu-x86",
                                   .layout_id = "test",
                                   .n_planes = static_cast<uint32_t>(pool.n_planes()),
                                   .plane_digest = digest}};
    wire::Sign(kTestKey, said, hello);
    return hello;
  }
  // A connection that this peer has made, ready.
  ConnectionId Accept(Incarnation from, int64_t now_us = 0) {
    const ConnectionId id = next_incoming++;
    const std::string said = Begin(id, "there", now_us);
    Receive(id, Hello(from, said), now_us);
    REQUIRE(link.Take<wire::HelloAck>(id).code == 0);
    return id;
  }
  // A stranger connects; returns the challenge that it gets.
  std::string Begin(ConnectionId id, const std::string& host = "there", int64_t now_us = 0) {
    connections.On(ConnectionAccepted{id, host}, now_us);
    return wire::Encode(link.Take<wire::Challenge>(id));
  }
  // Events for the engine since the last call.
  std::vector<TransferEvent> TakeEvents() { return std::exchange(setup.events, {}); }
  // Challenges an outgoing connection and answers its HELLO, whose addressee is ready then.
  // change: makes another answer of it, before it is signed.
  void Answer(ConnectionId id, const std::function<void(wire::HelloAck&)>& change = nullptr) {
    const wire::Challenge challenge{.nonce = {7}};
    Receive(id, challenge);
    const auto hello = link.Take<wire::Hello>(id);
    wire::HelloAck ack{.from = hello.to, .difference = {}};
    if (change) change(ack);
    wire::Sign(kTestKey, wire::Encode(challenge) + wire::Encode(hello), ack);
    Receive(id, ack);
  }

  TestPool pool;
  RecordingLink link;
  TransferSetup setup;
  PeerConnections connections;
  ConnectionId next_incoming = kFirstIncoming;
};

}  // namespace baton
