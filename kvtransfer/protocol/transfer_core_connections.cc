// Connections of TransferCore: HELLO, and the dispatch of messages.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kvtransfer/protocol/transfer_core.h"

namespace baton {
namespace {

uint32_t CodeOf(const absl::Status& status) { return static_cast<uint32_t>(status.code()); }

wire::Cancelled CancelledOf(const wire::Handoff& handoff, const absl::Status& status) {
  return {.handoff = handoff, .code = CodeOf(status), .reason = std::string(status.message())};
}

constexpr StateRow kStates[] = {
    {"greeting", "hello_timeout", "closed; its handoffs wait for another"},
    {"ready", "peer_timeout of silence, PING after a fifth of it", "closed; its handoffs end"},
    {"closed", "", ""}};
constexpr TransitionRow kTransitions[] = {{0, 1}, {0, 2}, {1, 2}};

}  // namespace

const MachineTable& ConnectionTable() {
  static const MachineTable table{"connection", "TransferCore, link thread", kStates, kTransitions};
  return table;
}

TransferCore::Connection TransferCore::NewConnection(int64_t now_us) const {
  return {.state = MachineState<ConnectionState>(ConnectionTable(), options_.transitions),
          .address = {},
          .opened_us = now_us,
          .heard_us = now_us,
          .pinged_us = now_us};
}

ConnectionId TransferCore::ConnectionTo(Incarnation peer, const std::string& address,
                                        int64_t now_us) {
  for (const auto& [id, connection] : connections_)
    if (connection.outgoing && connection.peer == peer && connection.address == address) return id;
  const ConnectionId id = link_->Connect(address);
  Connection& connection = connections_.emplace(id, NewConnection(now_us)).first->second;
  connection.outgoing = true;
  connection.address = address;
  connection.peer = peer;
  wire::Hello hello{.from = facts_.incarnation, .to = peer, .nonce = id, .identity = identity_};
  wire::Sign(facts_.key, hello);
  Send(id, hello);
  return id;
}

void TransferCore::Send(ConnectionId id, const wire::Message& message) {
  if (connections_.contains(id)) link_->Send(id, wire::Encode(message));
}

void TransferCore::ConnectSource(SourceKey key, int64_t now_us) {
  Source& source = sources_.at(key);
  source.machine.ConnectStarted();
  source.connection = ConnectionTo(source.peer, source.address, now_us);
  if (!connections_.at(source.connection).ready()) return;  // OnHelloAck continues
  HandoffEffects effects;
  source.machine.Connected(now_us, &effects);
  ApplySource(key, std::move(effects), now_us);
}

void TransferCore::Drop(ConnectionId id, absl::Status status, Loss loss, int64_t now_us) {
  if (!connections_.contains(id)) return;
  link_->Close(id);
  Forget(id, status, loss, now_us);
}

void TransferCore::Forget(ConnectionId id, const absl::Status& status, Loss loss, int64_t now_us) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  it->second.state = ConnectionState::kClosed;
  connections_.erase(it);
  const bool resumes = loss == Loss::kBroken && !shutting_down_;
  std::vector<SourceKey> sources;
  for (const auto& [key, source] : sources_)
    if (source.connection == id) sources.push_back(key);
  std::vector<SinkKey> sinks;
  for (const auto& [key, sink] : sinks_)
    if (sink.connection() == id) sinks.push_back(key);
  counters_.connections_lost += !sources.empty() || !sinks.empty();
  for (const SourceKey key : sources) {
    Source& source = sources_.at(key);
    source.connection = 0;
    HandoffEffects effects;
    if (resumes) {
      source.machine.ConnectionLost(status, now_us, &effects);
    } else {
      source.machine.End(status, false, now_us, &effects);
    }
    ApplySource(key, std::move(effects), now_us);
  }
  for (const SinkKey key : sinks) {
    if (!sinks_.contains(key)) continue;  // already failed together with an earlier one
    sinks_.at(key).ConnectionLost(now_us);
    if (!resumes) AbortSink(key, status, HandoffSink::PeerNotice::kNothing, now_us);
    RefuseHeld(key, now_us);
  }
}

void TransferCore::TickConnections(int64_t now_us) {
  const int64_t peer_timeout_us = options_.peer_timeout_ms * 1000;
  const int64_t ping_us = peer_timeout_us / 5;
  std::vector<std::tuple<ConnectionId, absl::Status, Loss>> dead;
  for (auto& [id, connection] : connections_) {
    if (!connection.ready()) {
      if (now_us - connection.opened_us >= options_.hello_timeout_ms * 1000)
        dead.emplace_back(id, absl::UnavailableError("the peer did not answer HELLO in time"),
                          Loss::kBroken);
      continue;
    }
    const int64_t silence_us = now_us - connection.heard_us;
    if (silence_us >= peer_timeout_us) {
      dead.emplace_back(id,
                        absl::UnavailableError(
                            absl::StrCat("the peer was silent for ", silence_us / 1000, " ms")),
                        Loss::kGone);
    } else if (silence_us >= ping_us && now_us - connection.pinged_us >= ping_us) {
      connection.pinged_us = now_us;
      link_->Send(id, wire::Encode(wire::Ping{static_cast<uint64_t>(now_us)}));
    }
  }
  for (auto& [id, status, loss] : dead) Drop(id, std::move(status), loss, now_us);
}

// ---- messages ----

bool TransferCore::OnMessage(ConnectionId id, Connection& connection, const wire::Message& message,
                             int64_t now_us) {
  if (!connection.ready()) {
    if (connection.outgoing) {
      const auto* ack = std::get_if<wire::HelloAck>(&message);
      return ack != nullptr && OnHelloAck(id, connection, *ack, now_us);
    }
    const auto* hello = std::get_if<wire::Hello>(&message);
    if (hello == nullptr || !wire::Verify(facts_.key, *hello)) return false;
    OnHello(id, connection, *hello);
    return true;
  }
  if (const auto* ping = std::get_if<wire::Ping>(&message)) {
    Send(id, wire::Pong{ping->seq});
    return true;
  }
  if (const auto* pong = std::get_if<wire::Pong>(&message)) {
    if (connection.outgoing) OnPong(connection.peer, now_us - static_cast<int64_t>(pong->seq));
    return true;
  }
  return connection.outgoing ? OnSourceMessage(id, message, now_us)
                             : OnSinkMessage(id, message, now_us);
}

void TransferCore::OnHello(ConnectionId id, Connection& connection, const wire::Hello& hello) {
  wire::HelloAck ack{
      .from = facts_.incarnation, .nonce = hello.nonce, .difference = HelloDifference(hello)};
  if (ack.difference.empty()) {
    connection.state = ConnectionState::kReady;
    connection.peer = hello.from;
  } else {
    ack.code = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
  }
  wire::Sign(facts_.key, ack);
  Send(id, ack);  // a refused peer closes; if not, the HELLO deadline does
}

std::string TransferCore::HelloDifference(const wire::Hello& hello) const {
  const wire::Identity& theirs = hello.identity;
  const auto differ = [](const char* what, const auto& peer, const auto& own) {
    return absl::StrCat(what, " differs: ", peer, " there, ", own, " here");
  };
  if (hello.to != facts_.incarnation) return "the worker was restarted (other incarnation)";
  if (theirs.model_fingerprint != identity_.model_fingerprint)
    return differ("model fingerprint", absl::Hex(theirs.model_fingerprint),
                  absl::Hex(identity_.model_fingerprint));
  if (theirs.numerics_id != identity_.numerics_id)
    return differ("numerics id", theirs.numerics_id, identity_.numerics_id);
  if (theirs.layout_id != identity_.layout_id)
    return differ("KV layout", theirs.layout_id, identity_.layout_id);
  if (theirs.n_planes != identity_.n_planes)
    return differ("number of planes", theirs.n_planes, identity_.n_planes);
  if (theirs.plane_digest != identity_.plane_digest) return "the sizes of the planes differ";
  return "";
}

bool TransferCore::OnHelloAck(ConnectionId id, Connection& connection, const wire::HelloAck& ack,
                              int64_t now_us) {
  if (ack.nonce != id || !wire::Verify(facts_.key, ack)) return false;
  if (ack.code != 0) {
    Drop(id, wire::ToStatus(ack.code, ack.difference), Loss::kGone, now_us);
    return true;
  }
  if (ack.from != connection.peer) return false;
  connection.state = ConnectionState::kReady;
  std::vector<SourceKey> keys;
  for (const auto& [key, source] : sources_)
    if (source.connection == id) keys.push_back(key);
  for (const SourceKey key : keys) {
    HandoffEffects effects;
    sources_.at(key).machine.Connected(now_us, &effects);
    ApplySource(key, std::move(effects), now_us);
  }
  return true;
}

// Handles a message on an outgoing connection: the peer is the sink.
bool TransferCore::OnSourceMessage(ConnectionId id, const wire::Message& message, int64_t now_us) {
  return std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, wire::Promise> || std::is_same_v<M, wire::NoRoom> ||
                      std::is_same_v<M, wire::Ack> || std::is_same_v<M, wire::Nack> ||
                      std::is_same_v<M, wire::AwaitingParts> ||
                      std::is_same_v<M, wire::Committed> || std::is_same_v<M, wire::Cancel> ||
                      std::is_same_v<M, wire::Cancelled>) {
          SourceKey key;
          Source* source = FindSource(m.handoff.ticket_id, &key);
          if (source != nullptr && source->connection == id &&
              source->machine.ticket().epoch == m.handoff.epoch) {
            HandoffEffects effects;
            source->machine.Handle(message, now_us, &effects);
            ApplySource(key, std::move(effects), now_us);
          } else if constexpr (std::is_same_v<M, wire::Cancel>) {
            Send(id, CancelledOf(m.handoff, absl::CancelledError("not open here")));
          }
          return true;
        } else {
          // A repeated HELLO_ACK is a duplicate; a sink sends no other messages.
          return std::is_same_v<M, wire::HelloAck>;
        }
      },
      message);
}

// Handles a message on an incoming connection: this end is the sink.
bool TransferCore::OnSinkMessage(ConnectionId id, const wire::Message& message, int64_t now_us) {
  if (const auto* open = std::get_if<wire::Open>(&message)) {
    OnOpen(id, *open, now_us);
    return true;
  }
  return std::visit(
      [&](const auto& m) {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, wire::Done> || std::is_same_v<M, wire::Commit>) {
          SinkKey key;
          HandoffSink* sink = FindSink(m.handoff, id, &key);
          if (sink != nullptr) {
            HandoffEffects effects;
            sink->Handle(m, now_us, &receive_pool_, &effects);
            ApplySink(key, std::move(effects), now_us);
          } else if constexpr (std::is_same_v<M, wire::Commit>) {
            AnswerEnded(id, m.handoff);
          }
          return true;
        } else if constexpr (std::is_same_v<M, wire::Cancel>) {
          SinkKey key;
          if (FindSink(m.handoff, id, &key) != nullptr) {
            AbortSink(key, wire::ToStatus(m.code, m.reason), HandoffSink::PeerNotice::kCancelled,
                      now_us);
          } else {
            // OPEN of this epoch is already processed or will never come: connections keep order.
            AnswerEnded(id, m.handoff);
          }
          return true;
        } else {
          return std::is_same_v<M, wire::Cancelled> || std::is_same_v<M, wire::Hello>;
        }
      },
      message);
}

void TransferCore::AnswerEnded(ConnectionId id, const wire::Handoff& handoff) {
  const Tombstones::Entry* entry = tombstones_.Find(handoff.ticket_id, handoff.epoch);
  if (entry != nullptr && entry->epoch == handoff.epoch && entry->status.ok()) {
    Send(id, wire::Committed{handoff});
  } else {
    Send(id, CancelledOf(handoff, entry != nullptr && !entry->status.ok()
                                      ? entry->status
                                      : absl::AbortedError("no such handoff is open here")));
  }
}

absl::Status TransferCore::CheckTicket(const Ticket& ticket) const {
  if (!VerifyTicket(facts_.key, ticket))
    return absl::PermissionDeniedError("the ticket's signature is wrong");
  if (ticket.sink != facts_.incarnation)
    return absl::FailedPreconditionError("the ticket is for another worker");
  if (shutting_down_) return absl::UnavailableError("this worker is shutting down");
  const bool promises = ticket.promise_pages > 0;
  if (ticket.kv_pages < 0 || ticket.promise_pages < 0 ||
      (promises ? ticket.promise_pages < ticket.kv_pages : ticket.kv_pages == 0))
    return absl::InvalidArgumentError("the ticket's page counts make no sense");
  if (ticket.is_part()
          ? promises || ticket.first_page < 0 || ticket.part_of == ticket.id
          : ticket.first_page < 0 || ticket.first_page > (promises ? ticket.kv_pages : 0))
    return absl::InvalidArgumentError("the ticket's parts make no sense");
  if (const int32_t n_pages = std::max(ticket.promise_pages, ticket.kv_pages);
      n_pages > pool_.n_pages)
    return absl::ResourceExhaustedError(
        absl::StrCat("the request needs ", n_pages, " KV pages, this worker has ", pool_.n_pages));
  if (sinks_.size() >= kMaxOpenHandoffs)
    return absl::ResourceExhaustedError("too many handoffs are open");
  return absl::OkStatus();
}

void TransferCore::OnOpen(ConnectionId id, const wire::Open& open, int64_t now_us) {
  const Ticket& ticket = open.ticket;
  const wire::Handoff handoff{ticket.id, ticket.epoch};
  if (const absl::Status status = CheckTicket(ticket); !status.ok())
    return Send(id, CancelledOf(handoff, status));
  if (tombstones_.Find(ticket.id, ticket.epoch) != nullptr) return AnswerEnded(id, handoff);
  const Incarnation source = connections_.at(id).peer;
  if (const auto it = sink_of_.find(ticket.id); it != sink_of_.end()) {
    const HandoffSink& sink = sinks_.at(it->second);
    if (sink.ticket().epoch == ticket.epoch && sink.source() == source)
      return OnOpenAgain(id, it->second, open.resume_from, now_us);
    if (sink.ticket().epoch >= ticket.epoch)
      return Send(id, CancelledOf(handoff, absl::AbortedError("the ticket is already open")));
  }
  EndEarlier(ticket.id, ticket.epoch, now_us);
  if (ticket.is_part()) EndEarlier(ticket.part_of, ticket.epoch, now_us);
  if (open.resume_from != wire::kNewHandoff) return AnswerEnded(id, handoff);
  absl::Status status = CheckAwaited(ticket);
  if (status.ok() && ticket.is_part()) status = CheckMain(ticket);
  if (status.ok() && HasLaterPart(ticket.id, ticket.epoch)) status = Superseded();
  if (!status.ok()) {
    FailAwaited(ticket.id, ticket.epoch, status);
    tombstones_.Add(ticket.id, ticket.epoch, status);
    return Send(id, CancelledOf(handoff, status));
  }
  const SinkKey key = next_id_++;
  HandoffSink& sink =
      sinks_.try_emplace(key, ticket, source, id, &pool_, limits_, now_us).first->second;
  sink_of_[ticket.id] = key;
  if (sink.inflow()) return BeginInflow(key, now_us);
  if (sink.part()) return BeginPart(key, now_us);
  waiting_.push_back(key);
  PromiseWaiting(now_us);
  const auto it = sinks_.find(key);
  if (it == sinks_.end() || !it->second.waiting()) return;
  HandoffEffects effects;
  it->second.NoRoom(expected_wait_us_, &effects);
  ApplySink(key, std::move(effects), now_us);
}

void TransferCore::OnOpenAgain(ConnectionId id, SinkKey key, uint32_t resume_from, int64_t now_us) {
  HandoffSink& sink = sinks_.at(key);
  HandoffEffects effects;
  if (sink.connection() == id) {
    sink.OpenAgain(expected_wait_us_, &effects);
  } else {
    // The source gave up the old connection, even if its end was not noticed here yet.
    Drop(sink.connection(), absl::UnavailableError("the peer connected anew"), Loss::kBroken,
         now_us);
    if (!sink.suspended()) return;  // the handoff is over, and its last receive is still under way
    sink.Resume(id, resume_from, expected_wait_us_, now_us, &effects);
  }
  ApplySink(key, std::move(effects), now_us);
}

}  // namespace baton
