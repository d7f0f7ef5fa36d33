// Connections of this process to its peers: CHALLENGE, HELLO and its answer, the MACs of a
// connection, PING and PONG, silence, the end. Knows no handoffs: events of the link and the time
// go in; ConnectionEffects and calls on the Link come out.
//
// Connections are one-way: the source's end connects, and keeps the connection for later handoffs.
// Who is connected to sends a fresh nonce, and HELLO proves the cluster key over it; until then the
// peer is a stranger, and strangers have few places of their own. A connection has MACs if either
// end does not trust the network between them. Either end PINGs a silent connection. States,
// deadlines and transitions: ConnectionTable; docs/HANDOFF.md. now_us: microseconds of one
// monotonic clock. Owner: TransferCore, link thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/state_machine.h"
#include "kvtransfer/protocol/networks.h"
#include "kvtransfer/protocol/session.h"
#include "kvtransfer/protocol/transfer_setup.h"

namespace baton {

const MachineTable& ConnectionTable();

enum class Loss {
  kBroken,  // handoffs continue over the next connection
  kGone     // the peer is given up: handoffs end
};

// --- effects
struct ConnectionReady {  // an outgoing one: the peer accepted our HELLO
  ConnectionId connection = 0;
};
struct ConnectionOver {
  ConnectionId connection = 0;
  absl::Status status;  // why; not OK
  Loss loss = Loss::kBroken;
};
// Messages about handoffs: over an outgoing connection, and over an incoming one.
struct SinkMessage {
  ConnectionId connection = 0;
  wire::Message message;
};
struct SourceMessage {
  ConnectionId connection = 0;
  Incarnation source = 0;
  wire::Message message;
};
// A chunk announced by the peer of an incoming connection: addressed to this process, undamaged.
struct ChunkOffered {
  ConnectionId connection = 0;
  AnnouncementId announcement = 0;
  wire::ChunkHeader header;
  std::shared_ptr<Session> session{};  // null: its chunks have no MAC
};
struct RoundTrip {  // of a PING and its PONG
  Incarnation peer = 0;
  int64_t us = 0;
};
using ConnectionEffect = std::variant<ConnectionReady, ConnectionOver, SinkMessage, SourceMessage,
                                      ChunkOffered, RoundTrip>;

class PeerConnections {
 public:
  static constexpr size_t kMaxPeers = 1'024;   // incoming connections after HELLO
  static constexpr size_t kMaxStrangers = 64;  // before; half of them at most from one host

  explicit PeerConnections(TransferSetup* setup);  // outlives this object

  void On(const ConnectionAccepted& event, int64_t now_us);
  void On(const MessageArrived& event, int64_t now_us);
  void On(const ChunkAnnounced& event, int64_t now_us);
  void On(const ConnectionLost& event, int64_t now_us);
  // Called every few milliseconds: ends connections that are past their deadline, PINGs silent
  // ones.
  void Tick(int64_t now_us);
  void CloseAll();  // gives all peers up

  // The outgoing connection to this peer at this address, made if there is none. ConnectionReady
  // or ConnectionOver follows as an effect.
  ConnectionId ConnectTo(Incarnation peer, const std::string& address, int64_t now_us);
  // Ignored if the connection is over; so is Break.
  void Send(ConnectionId id, const wire::Message& message);
  // Sets the MAC of a chunk that is about to be announced, if the connection has MACs.
  void Sign(ConnectionId id, wire::ChunkHeader* header, const std::byte* payload);
  // Closes a connection as broken; ConnectionOver follows as an effect.
  void Break(ConnectionId id, absl::string_view why) {
    Drop(id, absl::UnavailableError(why), Loss::kBroken);
  }

  // Effects since the last call, in order.
  std::vector<ConnectionEffect> TakeEffects() { return std::exchange(effects_, {}); }

 private:
  enum class State { kGreeting, kReady, kClosed };
  struct Connection {
    MachineState<State> state;  // ready: HELLO is exchanged
    bool outgoing = false;
    std::string address{};  // the peer's; incoming: the one that it came from
    Incarnation peer = 0;   // outgoing: expected; incoming: named by HELLO
    int64_t opened_us = 0, heard_us = opened_us, pinged_us = opened_us;
    std::string said{};                  // greeting: CHALLENGE, and the source's HELLO
    bool wants_mac = false;              // this end
    std::shared_ptr<Session> session{};  // once ready; null: no MACs

    bool is_stranger() const { return !outgoing && state == State::kGreeting; }
    bool ready() const { return state == State::kReady; }
  };

  MachineState<State> NewState() const { return {ConnectionTable(), setup_->options.transitions}; }
  bool Trusts(const std::string& address) const;
  wire::Nonce MakeNonce(ConnectionId id) const;
  void MakeRoomFor(const std::string& address);
  // Messages before a connection is ready, and after. False: not allowed on this connection.
  bool OnGreeting(ConnectionId id, Connection& connection, const wire::Message& message);
  bool OnMessage(ConnectionId id, Connection& connection, wire::Message message, int64_t now_us);
  void OnChallenge(ConnectionId id, Connection& connection, const wire::Challenge& challenge);
  bool OnHello(ConnectionId id, Connection& connection, const wire::Hello& hello);
  bool OnHelloAck(ConnectionId id, Connection& connection, const wire::HelloAck& ack);
  void SetReady(Connection& connection, bool has_macs);
  absl::Status CheckHello(const wire::Hello& hello);
  std::string HelloDifference(const wire::Hello& hello) const;
  void Refuse(const ChunkAnnounced& event, ChunkRefusal why, absl::Status status, Loss loss);
  void Drop(ConnectionId id, absl::Status status, Loss loss);
  void Forget(ConnectionId id, absl::Status status, Loss loss);

  TransferSetup* const setup_;
  const wire::Identity identity_;
  const Networks trusted_;
  std::map<ConnectionId, Connection> connections_;
  std::vector<ConnectionEffect> effects_;
  int64_t ticked_us_ = 0;
};

}  // namespace baton
