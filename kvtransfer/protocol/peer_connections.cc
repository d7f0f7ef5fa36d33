#include "kvtransfer/protocol/peer_connections.h"

#include "absl/strings/str_cat.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {
namespace {

constexpr StateRow kStates[] = {
    {"greeting", "hello_timeout", "closed; its handoffs wait for another"},
    {"ready", "peer_timeout of silence, PING after a fifth of it", "closed; its handoffs end"},
    {"closed", "", ""}};
constexpr TransitionRow kTransitions[] = {{0, 1}, {0, 2}, {1, 2}};

wire::Identity IdentityOf(const TransferFacts& facts, const PoolView& pool) {
  uint32_t digest = 0;
  for (const PoolPlane& plane : pool.planes)
    digest = ExtendCrc32c(digest, &plane.bytes, sizeof(plane.bytes));
  return {.model_fingerprint = facts.model_fingerprint,
          .numerics_id = facts.numerics_id,
          .layout_id = facts.layout_id,
          .n_planes = static_cast<uint32_t>(pool.planes.size()),
          .plane_digest = digest};
}

// True if the sink, or the source, of a connection sends this message, which is about handoffs.
bool MaySend(bool is_sink, const wire::Message& message) {
  using std::holds_alternative;
  if (holds_alternative<wire::Cancel>(message) || holds_alternative<wire::Cancelled>(message))
    return true;
  return is_sink !=
         (holds_alternative<wire::Open>(message) || holds_alternative<wire::Done>(message) ||
          holds_alternative<wire::Commit>(message));
}

}  // namespace

const MachineTable& ConnectionTable() {
  static const MachineTable table{"connection", "PeerConnections, link thread", kStates,
                                  kTransitions};
  return table;
}

PeerConnections::PeerConnections(TransferSetup* setup)
    : setup_(setup), identity_(IdentityOf(setup->facts, setup->pool)) {}

// ---- the life of a connection ----

ConnectionId PeerConnections::ConnectTo(Incarnation peer, const std::string& address,
                                        int64_t now_us) {
  for (const auto& [id, connection] : connections_) {
    if (!connection.outgoing || connection.peer != peer || connection.address != address) continue;
    if (connection.ready()) effects_.emplace_back(ConnectionReady{id});
    return id;
  }
  const ConnectionId id = setup_->link->Connect(address);
  connections_.emplace(id, Connection{NewState(), true, address, peer, now_us});
  wire::Hello hello{
      .from = setup_->facts.incarnation, .to = peer, .nonce = id, .identity = identity_};
  wire::Sign(setup_->facts.key, hello);
  Send(id, hello);
  return id;
}

void PeerConnections::On(const ConnectionAccepted& event, int64_t now_us) {
  if (setup_->shutting_down || connections_.size() >= kMaxConnections)
    return setup_->link->Close(event.connection);
  connections_.emplace(event.connection, Connection{.state = NewState(), .opened_us = now_us});
}

void PeerConnections::Send(ConnectionId id, const wire::Message& message) {
  if (connections_.contains(id)) setup_->link->Send(id, wire::Encode(message));
}

void PeerConnections::On(const ConnectionLost& event, int64_t) {
  Forget(event.connection, event.status, Loss::kBroken);
}

void PeerConnections::Drop(ConnectionId id, absl::Status status, Loss loss) {
  if (!connections_.contains(id)) return;
  setup_->link->Close(id);
  Forget(id, std::move(status), loss);
}

void PeerConnections::Forget(ConnectionId id, absl::Status status, Loss loss) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  it->second.state = State::kClosed;
  connections_.erase(it);
  effects_.emplace_back(ConnectionOver{id, std::move(status), loss});
}

void PeerConnections::Tick(int64_t now_us) {
  const int64_t peer_timeout_us = setup_->options.peer_timeout_ms * 1000;
  const int64_t ping_us = peer_timeout_us / 5;
  // If this process itself was stopped, the silence of peers proves nothing yet.
  const int64_t ticked_us = std::exchange(ticked_us_, now_us);
  if (ticked_us != 0 && now_us - ticked_us > peer_timeout_us / 2)
    for (auto& [id, connection] : connections_) connection.heard_us = now_us;
  for (auto it = connections_.begin(); it != connections_.end();) {
    auto& [id, connection] = *it++;  // Drop erases it
    const int64_t silence_us = now_us - connection.heard_us;
    if (!connection.ready()) {
      if (now_us - connection.opened_us >= setup_->options.hello_timeout_ms * 1000)
        Break(id, "the peer did not answer HELLO in time");
    } else if (silence_us >= peer_timeout_us) {
      Drop(id,
           absl::UnavailableError(
               absl::StrCat("the peer was silent for ", silence_us / 1000, " ms")),
           Loss::kGone);
    } else if (silence_us >= ping_us && now_us - connection.pinged_us >= ping_us) {
      connection.pinged_us = now_us;
      Send(id, wire::Ping{static_cast<uint64_t>(now_us)});
    }
  }
}

void PeerConnections::CloseAll() {
  while (!connections_.empty()) Drop(connections_.begin()->first, ShuttingDown(), Loss::kGone);
}

// ---- messages ----

void PeerConnections::On(const MessageArrived& event, int64_t now_us) {
  const auto it = connections_.find(event.connection);
  if (it == connections_.end()) return;  // already closed by this end
  it->second.heard_us = now_us;
  absl::StatusOr<wire::Message> message = wire::Decode(event.bytes);
  if (!message.ok()) return Drop(event.connection, message.status(), Loss::kBroken);
  if (!OnMessage(event.connection, it->second, *std::move(message), now_us))
    Drop(event.connection, absl::InvalidArgumentError("the peer broke the transfer protocol"),
         Loss::kGone);
}

bool PeerConnections::OnMessage(ConnectionId id, Connection& connection, wire::Message message,
                                int64_t now_us) {
  const auto* hello = std::get_if<wire::Hello>(&message);
  const auto* ack = std::get_if<wire::HelloAck>(&message);
  if (!connection.ready()) {
    if (connection.outgoing) return ack != nullptr && OnHelloAck(id, connection, *ack);
    if (hello == nullptr || !wire::Verify(setup_->facts.key, *hello)) return false;
    OnHello(id, connection, *hello);
    return true;
  }
  if (hello != nullptr || ack != nullptr) return connection.outgoing == (ack != nullptr);  // again
  if (const auto* ping = std::get_if<wire::Ping>(&message)) {
    Send(id, wire::Pong{ping->seq});
  } else if (const auto* pong = std::get_if<wire::Pong>(&message)) {
    const uint64_t took_us = static_cast<uint64_t>(now_us) - pong->seq;  // of any seq
    const auto longest_us = static_cast<uint64_t>(setup_->options.peer_timeout_ms) * 1000;
    if (connection.outgoing && took_us > 0 && took_us <= longest_us)
      effects_.emplace_back(RoundTrip{connection.peer, static_cast<int64_t>(took_us)});
  } else if (!MaySend(connection.outgoing, message)) {
    return false;
  } else if (connection.outgoing) {
    effects_.emplace_back(SinkMessage{id, std::move(message)});
  } else {
    effects_.emplace_back(SourceMessage{id, connection.peer, std::move(message)});
  }
  return true;
}

void PeerConnections::OnHello(ConnectionId id, Connection& connection, const wire::Hello& hello) {
  wire::HelloAck ack{.from = setup_->facts.incarnation,
                     .nonce = hello.nonce,
                     .difference = HelloDifference(hello)};
  if (ack.difference.empty()) {
    connection.state = State::kReady;
    connection.peer = hello.from;
  } else {
    ack.code = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
  }
  wire::Sign(setup_->facts.key, ack);
  Send(id, ack);  // a refused peer closes; if not, the HELLO deadline does
}

std::string PeerConnections::HelloDifference(const wire::Hello& hello) const {
  const wire::Identity& theirs = hello.identity;
  std::string difference;  // the first one
  const auto compare = [&difference](const char* what, const auto& peer, const auto& own) {
    if (difference.empty() && peer != own)
      difference = absl::StrCat(what, " differs: ", peer, " there, ", own, " here");
  };
  if (hello.to != setup_->facts.incarnation) return "the worker was restarted (other incarnation)";
  compare("model fingerprint", absl::StrCat(absl::Hex(theirs.model_fingerprint)),
          absl::StrCat(absl::Hex(identity_.model_fingerprint)));
  compare("numerics id", theirs.numerics_id, identity_.numerics_id);
  compare("KV layout", theirs.layout_id, identity_.layout_id);
  compare("number of planes", theirs.n_planes, identity_.n_planes);
  if (difference.empty() && theirs.plane_digest != identity_.plane_digest)
    return "the sizes of the planes differ";
  return difference;
}

bool PeerConnections::OnHelloAck(ConnectionId id, Connection& connection,
                                 const wire::HelloAck& ack) {
  if (ack.nonce != id || !wire::Verify(setup_->facts.key, ack)) return false;
  if (ack.code != 0) {
    Drop(id, wire::ToStatus(ack.code, ack.difference), Loss::kGone);
    return true;
  }
  if (ack.from != connection.peer) return false;
  connection.state = State::kReady;
  effects_.emplace_back(ConnectionReady{id});
  return true;
}

// ---- chunks ----

void PeerConnections::On(const ChunkAnnounced& event, int64_t now_us) {
  const auto it = connections_.find(event.connection);
  if (it == connections_.end()) return;  // the link has dropped the announcement
  Connection& connection = it->second;
  connection.heard_us = now_us;
  absl::StatusOr<wire::ChunkHeader> header = wire::DecodeChunkHeader(event.header);
  if (!header.ok()) return Refuse(event, ChunkRefusal::kHeader, header.status(), Loss::kBroken);
  if (header->length != event.length)
    return Refuse(event, ChunkRefusal::kLength,
                  absl::DataLossError("a chunk's length is not what its header says"),
                  Loss::kBroken);
  if (connection.outgoing || !connection.ready() || header->receiver != setup_->facts.incarnation ||
      header->sender != connection.peer)
    return Refuse(event, ChunkRefusal::kPeer,
                  absl::InvalidArgumentError("the peer announced a chunk that is not for this "
                                             "worker or not from that one"),
                  Loss::kGone);
  effects_.emplace_back(ChunkOffered{event.connection, event.announcement, *header});
}

void PeerConnections::Refuse(const ChunkAnnounced& event, ChunkRefusal why, absl::Status status,
                             Loss loss) {
  setup_->counters.CountRefusal(why);
  setup_->link->Refuse(event.announcement);
  Drop(event.connection, std::move(status), loss);
}

}  // namespace baton
