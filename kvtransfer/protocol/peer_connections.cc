#include "kvtransfer/protocol/peer_connections.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
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

Networks Parsed(const std::string& cidrs) {
  absl::StatusOr<Networks> networks = Networks::Parse(cidrs, "kvtransfer.trusted_cidrs");
  BATON_CHECK(networks.ok());  // TransferCore::Validate
  return *std::move(networks);
}

std::array<uint8_t, 32> MacOf(const ClusterKey& key, std::string_view use, std::string_view text) {
  const std::string all = absl::StrCat(std::string(use), std::string(text));
  return ClusterMac(key, all.data(), all.size());
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
    : setup_(setup),
      identity_(IdentityOf(setup->facts, setup->pool)),
      trusted_(Parsed(setup->options.trusted_cidrs)) {}

// ---- the life of a connection ----

ConnectionId PeerConnections::ConnectTo(Incarnation peer, const std::string& address,
                                        int64_t now_us) {
  for (const auto& [id, connection] : connections_) {
    if (!connection.outgoing || connection.peer != peer || connection.address != address) continue;
    if (connection.ready()) effects_.emplace_back(ConnectionReady{id});
    return id;
  }
  const ConnectionId id = setup_->link->Connect(address);
  connections_.emplace(id, Connection{.state = NewState(),
                                      .outgoing = true,
                                      .address = address,
                                      .peer = peer,
                                      .opened_us = now_us,
                                      .wants_mac = !Trusts(address)});
  return id;  // the owner of the other end speaks first
}

void PeerConnections::On(const ConnectionAccepted& event, int64_t now_us) {
  if (setup_->shutting_down) return setup_->link->Close(event.connection);
  MakeRoomFor(event.from);
  const bool wants_mac = !Trusts(event.from);
  const wire::Challenge challenge{MakeNonce(event.connection), wants_mac};
  connections_.emplace(event.connection, Connection{.state = NewState(),
                                                    .address = event.from,
                                                    .opened_us = now_us,
                                                    .said = wire::Encode(challenge),
                                                    .wants_mac = wants_mac});
  Send(event.connection, challenge);
}

// A packet to an address of this machine does not leave it.
bool PeerConnections::Trusts(const std::string& address) const {
  return !trusted_.all().empty() &&
         (HostOf(address) == setup_->options.listen_host || trusted_.Contain(address));
}

// Needs no random device: a connection's id and an incarnation come once.
wire::Nonce PeerConnections::MakeNonce(ConnectionId id) const {
  return MacOf(setup_->facts.key, "baton kv nonce v1 ",
               absl::StrCat(setup_->facts.incarnation, " ", id));
}

// Closes a stranger if another one has no place: one of the same host if that has half of them,
// else the oldest, which has had the longest time for its HELLO.
void PeerConnections::MakeRoomFor(const std::string& address) {
  size_t n = 0, n_same = 0;
  ConnectionId oldest = 0, oldest_same = 0;
  for (const auto& [id, connection] : connections_) {  // ascending: the oldest first
    if (!connection.is_stranger()) continue;
    if (n++ == 0) oldest = id;
    if (HostOf(connection.address) == HostOf(address) && n_same++ == 0) oldest_same = id;
  }
  if (n_same < kMaxStrangers / 2 && n < kMaxStrangers) return;
  setup_->counters.CountRefusal(PeerRefusal::kCrowded);
  Drop(n_same >= kMaxStrangers / 2 ? oldest_same : oldest,
       absl::ResourceExhaustedError("too many connections that have not said HELLO"),
       Loss::kBroken);
}

void PeerConnections::Send(ConnectionId id, const wire::Message& message) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  std::string bytes = wire::Encode(message);
  if (it->second.session != nullptr) bytes = it->second.session->Seal(std::move(bytes));
  setup_->link->Send(id, std::move(bytes));
}

void PeerConnections::Sign(ConnectionId id, wire::ChunkHeader* header, const std::byte* payload) {
  const auto it = connections_.find(id);
  if (it == connections_.end() || it->second.session == nullptr) return;
  it->second.session->Sign(header, payload);
  ++setup_->counters.signed_chunks;
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
      if (now_us - connection.opened_us < setup_->options.hello_timeout_ms * 1000) continue;
      if (!connection.outgoing) setup_->counters.CountRefusal(PeerRefusal::kSilent);
      Break(id, "the peer did not greet in time");
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
  Connection& connection = it->second;
  std::string_view bytes = event.bytes;
  const bool is_greeting = wire::IsGreeting(bytes);
  if (connection.session != nullptr && connection.ready() && is_greeting)
    return setup_->counters.CountRefusal(PeerRefusal::kForged);  // no MAC is on it
  if (connection.session != nullptr && !is_greeting) {
    const Session::Opened opened = connection.session->Open(&bytes);
    if (opened == Session::Opened::kRepeated)
      return setup_->counters.CountRefusal(PeerRefusal::kRepeated);
    if (opened == Session::Opened::kForged) {
      setup_->counters.CountRefusal(PeerRefusal::kForged);
      return Drop(event.connection, absl::DataLossError("a message without the connection's MAC"),
                  Loss::kBroken);
    }
  }
  connection.heard_us = now_us;
  absl::StatusOr<wire::Message> message = wire::Decode(bytes);
  if (connection.is_stranger() && !(message.ok() && std::holds_alternative<wire::Hello>(*message)))
    setup_->counters.CountRefusal(PeerRefusal::kNoHello);
  if (!message.ok()) return Drop(event.connection, message.status(), Loss::kBroken);
  const bool is_allowed = connection.ready()
                              ? OnMessage(event.connection, connection, *std::move(message), now_us)
                              : OnGreeting(event.connection, connection, *message);
  if (!is_allowed)
    Drop(event.connection, absl::InvalidArgumentError("the peer broke the transfer protocol"),
         Loss::kGone);
}

bool PeerConnections::OnGreeting(ConnectionId id, Connection& connection,
                                 const wire::Message& message) {
  if (const auto* hello = std::get_if<wire::Hello>(&message))
    return !connection.outgoing && OnHello(id, connection, *hello);
  if (!connection.outgoing) return false;
  if (const auto* ack = std::get_if<wire::HelloAck>(&message))
    return OnHelloAck(id, connection, *ack);
  const auto* challenge = std::get_if<wire::Challenge>(&message);
  if (challenge != nullptr && connection.said.empty()) OnChallenge(id, connection, *challenge);
  return challenge != nullptr;
}

bool PeerConnections::OnMessage(ConnectionId id, Connection& connection, wire::Message message,
                                int64_t now_us) {
  if (std::holds_alternative<wire::Hello>(message)) return !connection.outgoing;  // again
  if (std::holds_alternative<wire::HelloAck>(message) ||
      std::holds_alternative<wire::Challenge>(message))
    return connection.outgoing;
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

void PeerConnections::OnChallenge(ConnectionId id, Connection& connection,
                                  const wire::Challenge& challenge) {
  const ClusterKey& key = setup_->facts.key;
  wire::Hello hello{.from = setup_->facts.incarnation,
                    .to = connection.peer,
                    .nonce = MakeNonce(id),
                    .wants_mac = connection.wants_mac,
                    .key_id = KeyIdOf(key),
                    .identity = identity_};
  connection.said = wire::Encode(challenge);
  wire::Sign(key, connection.said, hello);
  connection.said += wire::Encode(hello);
  connection.wants_mac |= challenge.wants_mac != 0;
  Send(id, hello);
}

bool PeerConnections::OnHello(ConnectionId id, Connection& connection, const wire::Hello& hello) {
  const ClusterKey& key = setup_->facts.key;
  if (!wire::Verify(key, connection.said, hello)) {
    setup_->counters.CountRefusal(hello.key_id == KeyIdOf(key) ? PeerRefusal::kProof
                                                               : PeerRefusal::kOtherKey);
    return false;
  }
  const absl::Status status = CheckHello(hello);
  wire::HelloAck ack{.from = setup_->facts.incarnation,
                     .code = static_cast<uint32_t>(status.code()),
                     .difference = std::string(status.message())};
  const std::string said = absl::StrCat(connection.said, wire::Encode(hello));
  wire::Sign(key, said, ack);
  Send(id, ack);  // a refused peer closes; if not, the HELLO deadline does
  if (!status.ok()) return true;
  connection.said = said;
  connection.peer = hello.from;
  SetReady(connection, connection.wants_mac || hello.wants_mac != 0);
  return true;
}

void PeerConnections::SetReady(Connection& connection, bool has_macs) {
  if (has_macs)
    connection.session = std::make_shared<Session>(
        MacOf(setup_->facts.key, "baton kv session v1 ", connection.said), connection.outgoing);
  connection.said.clear();
  connection.state = State::kReady;
}

absl::Status PeerConnections::CheckHello(const wire::Hello& hello) {
  if (std::string difference = HelloDifference(hello); !difference.empty()) {
    setup_->counters.CountRefusal(PeerRefusal::kDiffers);
    return absl::FailedPreconditionError(difference);
  }
  const auto n_peers = std::count_if(
      connections_.begin(), connections_.end(),
      [](const auto& entry) { return !entry.second.outgoing && entry.second.ready(); });
  if (static_cast<size_t>(n_peers) < kMaxPeers) return absl::OkStatus();
  setup_->counters.CountRefusal(PeerRefusal::kCrowded);
  return absl::ResourceExhaustedError(
      absl::StrCat("the worker has connections of ", n_peers, " peers already"));
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
  if (connection.said.empty() || !wire::Verify(setup_->facts.key, connection.said, ack))
    return false;
  if (ack.code != 0) {
    Drop(id, wire::ToStatus(ack.code, ack.difference), Loss::kGone);
    return true;
  }
  if (ack.from != connection.peer) return false;
  SetReady(connection, connection.wants_mac);
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
  effects_.emplace_back(
      ChunkOffered{event.connection, event.announcement, *header, connection.session});
}

void PeerConnections::Refuse(const ChunkAnnounced& event, ChunkRefusal why, absl::Status status,
                             Loss loss) {
  setup_->counters.CountRefusal(why);
  setup_->link->Refuse(event.announcement);
  Drop(event.connection, std::move(status), loss);
}

}  // namespace baton
