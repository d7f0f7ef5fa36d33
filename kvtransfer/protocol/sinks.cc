#include "kvtransfer/protocol/sinks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using PeerNotice = HandoffSink::PeerNotice;

// By NackReason, from kCrc on.
constexpr ChunkRefusal kRefusals[] = {ChunkRefusal::kPayload, ChunkRefusal::kUnknownHandoff,
                                      ChunkRefusal::kNotGranted, ChunkRefusal::kBadRange,
                                      ChunkRefusal::kTooBig};

// Status of the rest of an attempt that a later attempt replaces.
absl::Status Superseded() { return absl::AbortedError("the request was dispatched anew"); }

wire::Handoff PromiseKey(const Ticket& ticket) { return {ticket.promise, ticket.epoch}; }

absl::Status CheckTicket(const Ticket& ticket, const TransferSetup& setup) {
  if (!VerifyTicket(setup.facts.key, ticket))
    return absl::PermissionDeniedError("the ticket's signature is wrong");
  if (ticket.sink != setup.facts.incarnation)
    return absl::FailedPreconditionError("the ticket is for another worker");
  if (ticket.kv_pages < 0 || ticket.promise_pages < 0 ||
      (ticket.is_named() ? ticket.kv_pages == 0 : ticket.promise_pages < ticket.kv_pages))
    return absl::InvalidArgumentError("the ticket's page counts make no sense");
  if (ticket.first_page < 0 || ticket.n_pages < 0 || (ticket.n_pages == 0 && ticket.kv_pages > 0) ||
      int64_t{ticket.first_page} + ticket.n_pages > ticket.kv_pages)
    return absl::InvalidArgumentError("the ticket's range makes no sense");
  if (const int32_t n_pages = std::max(ticket.promise_pages, ticket.kv_pages);
      n_pages > setup.pool.n_pages)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", n_pages, " KV pages, this worker has ", setup.pool.n_pages));
  return absl::OkStatus();
}

absl::Status CheckPages(const Ticket& ticket, const AwaitInflow& await) {
  if (ticket.is_named() && static_cast<size_t>(ticket.kv_pages) == await.pages.size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ticket is for ", ticket.kv_pages, " KV pages and a promise of ",
                   ticket.promise_pages, ", the worker awaits an inflow of ", await.pages.size()));
}

// True if the map has a later epoch of this id.
template <typename Map>
bool HasLater(const Map& map, const TicketId& id, Epoch epoch) {
  const auto it = map.upper_bound({id, epoch});
  return it != map.end() && it->first.ticket_id == id;
}

template <typename Map>
std::vector<wire::Handoff> KeysUpTo(const Map& map, const TicketId& id, int64_t epoch) {
  std::vector<wire::Handoff> keys;
  for (auto it = map.lower_bound({id, 0});
       it != map.end() && it->first.ticket_id == id && it->first.epoch <= epoch; ++it)
    keys.push_back(it->first);
  return keys;
}

// Copies the keys, because the work for each entry may erase entries.
template <typename Map>
std::vector<wire::Handoff> KeysOf(const Map& map) {
  std::vector<wire::Handoff> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

std::string_view NameOf(ChunkRefusal refusal) {
  static constexpr std::string_view kNames[kChunkRefusals] = {
      "payload",     "header",    "length",  "peer",     "unknown_handoff",
      "not_granted", "bad_range", "too_big", "duplicate"};
  return kNames[static_cast<size_t>(refusal)];
}

Sinks::Sinks(TransferSetup* setup, PeerConnections* connections)
    : setup_(setup), connections_(connections), receives_(setup) {}

Sinks::Sink* Sinks::Find(const wire::Handoff& handoff) {
  const auto it = sinks_.find(handoff);
  return it == sinks_.end() ? nullptr : &it->second;
}

int32_t Sinks::bound_pages() const {
  int32_t n = 0;
  for (const auto& [key, promise] : promises_) n += promise.bound_pages();
  return n;
}

// ---- commands ----

void Sinks::On(LendPages& command, int64_t) {
  for (const int32_t page : command.pages) BATON_CHECK(page >= 0 && page < setup_->pool.n_pages);
  receive_pool_.Lend(command.pages);
  expected_wait_us_ = command.expected_wait_us;
}

void Sinks::On(ReclaimPages& command, int64_t) {
  events_.emplace_back(PagesReturned{receive_pool_.Reclaim(command.n)});
}

void Sinks::On(AwaitInflow& command, int64_t now_us) {
  for (const int32_t page : command.pages) BATON_CHECK(page >= 0 && page < setup_->pool.n_pages);
  const wire::Handoff key{command.ticket_id, command.epoch};
  const auto fail = [&](absl::Status status) {
    events_.emplace_back(InflowFailed{key.ticket_id, key.epoch, std::move(status)});
  };
  if (shutting_down_) return fail(ShuttingDown());
  if (const auto* entry = ended_promises_.Find(key.ticket_id, key.epoch))
    return fail(entry->status.ok() ? Superseded() : entry->status);
  const auto other = awaited_.find(key.ticket_id);
  if (HasLater(promises_, key.ticket_id, key.epoch) ||
      (other != awaited_.end() && other->second.epoch > key.epoch))
    return fail(Superseded());
  EndUpTo(key.ticket_id, int64_t{key.epoch} - 1, Superseded(), now_us);
  const auto it = promises_.find(key);
  if (it == promises_.end()) {
    BATON_CHECK(awaited_.try_emplace(key.ticket_id, std::move(command)).second);
  } else if (absl::Status status = CheckPages(it->second.ticket(), command); !status.ok()) {
    FailPromise(key, status, now_us);
    fail(std::move(status));
  } else {
    it->second.Name(std::move(command), now_us);
    TellPromised(it->second, now_us);
  }
}

void Sinks::On(const CancelHandoff& command, int64_t now_us) {
  const absl::Status status = absl::CancelledError("cancelled");
  EndUpTo(command.ticket_id, command.epoch, status, now_us);
  ended_handoffs_.Add(command.ticket_id, command.epoch, status);
  ended_promises_.Add(command.ticket_id, command.epoch, status);
}

// ---- connections and messages ----

void Sinks::On(const ConnectionOver& over, int64_t now_us) {
  bool was_used = false;
  for (const wire::Handoff& handoff : KeysOf(sinks_)) {
    Sink* sink = Find(handoff);  // nullptr: already failed together with an earlier one
    if (sink == nullptr || sink->machine.connection() != over.connection) continue;
    was_used = true;
    sink->machine.ConnectionLost(now_us);
    if (over.loss == Loss::kGone || shutting_down_)
      Abort(handoff, over.status, PeerNotice::kNothing, now_us);
    RefuseHeld(handoff, now_us);
  }
  setup_->counters.connections_lost += was_used;
}

void Sinks::On(const SourceMessage& from, int64_t now_us) {
  if (const auto* open = std::get_if<wire::Open>(&from.message)) return OnOpen(from, *open, now_us);
  const auto* done = std::get_if<wire::Done>(&from.message);
  const auto* commit = std::get_if<wire::Commit>(&from.message);
  const auto* cancel = std::get_if<wire::Cancel>(&from.message);
  const wire::Handoff& handoff = *wire::HandoffOf(from.message);
  Sink* sink = Find(handoff);
  if (sink == nullptr || sink->machine.connection() != from.connection) {
    // OPEN of this epoch is already processed or will never come: connections keep order.
    if (commit != nullptr || cancel != nullptr)
      connections_->Send(from.connection, ended_handoffs_.AnswerTo(handoff));
    return;
  }
  if (cancel != nullptr)
    return Abort(handoff, wire::ToStatus(cancel->code, cancel->reason), PeerNotice::kCancelled,
                 now_us);
  if (done != nullptr) sink->machine.Handle(*done, now_us, &sink->effects);
  if (commit != nullptr) sink->machine.Handle(*commit, now_us, &sink->effects);
  Apply(handoff, now_us);
}

absl::Status Sinks::CheckAttempt(const Ticket& ticket) const {
  if (const auto it = awaited_.find(ticket.promise); it != awaited_.end()) {
    if (it->second.epoch > ticket.epoch) return Superseded();
    RETURN_IF_ERROR(CheckPages(ticket, it->second));
  }
  if (const auto* entry = ended_promises_.Find(ticket.promise, ticket.epoch)) {
    if (entry->epoch > ticket.epoch) return Superseded();
    return entry->status.ok() ? absl::AbortedError("the promise is complete without this handoff")
                              : entry->status;
  }
  if (HasLater(promises_, ticket.promise, ticket.epoch)) return Superseded();
  const auto it = promises_.find(PromiseKey(ticket));
  return it == promises_.end() ? absl::OkStatus() : it->second.Check(ticket);
}

void Sinks::OnOpen(const SourceMessage& from, const wire::Open& open, int64_t now_us) {
  const Ticket& ticket = open.ticket;
  const wire::Handoff handoff{ticket.id, ticket.epoch}, key = PromiseKey(ticket);
  const auto refuse = [&](const absl::Status& status) {
    connections_->Send(from.connection, wire::FromStatus<wire::Cancelled>(handoff, status));
  };
  absl::Status status = CheckTicket(ticket, *setup_);
  if (status.ok() && shutting_down_) status = ShuttingDown();
  if (status.ok() && sinks_.size() >= kMaxOpenHandoffs)
    status = absl::ResourceExhaustedError("too many handoffs are open");
  if (!status.ok()) return refuse(status);
  if (ended_handoffs_.Find(ticket.id, ticket.epoch) != nullptr)
    return connections_->Send(from.connection, ended_handoffs_.AnswerTo(handoff));
  if (const Sink* sink = Find(handoff))
    return sink->machine.source() == from.source
               ? OnOpenAgain(from.connection, handoff, open.resume_from, now_us)
               : refuse(absl::AbortedError("the ticket is already open"));
  EndUpTo(ticket.promise, int64_t{ticket.epoch} - 1, Superseded(), now_us);
  if (open.resume_from != wire::kNewHandoff)
    return connections_->Send(from.connection, ended_handoffs_.AnswerTo(handoff));
  status = CheckAttempt(ticket);
  if (!status.ok()) {  // with all of the promise
    EndUpTo(ticket.promise, ticket.epoch, status, now_us);
    ended_handoffs_.Add(ticket.id, ticket.epoch, status);
    return refuse(status);
  }
  const auto [it, is_new] =
      promises_.try_emplace(key, ticket, &setup_->pool, setup_->limits, now_us);
  PagePromise& promise = it->second;
  promise.Begin(ticket, now_us);
  sinks_.emplace(handoff, Sink{HandoffSink(ticket, from.source, from.connection, &promise,
                                           &setup_->pool, setup_->limits, now_us)});
  if (is_new) BeginPromise(key, now_us);
  auto& [sink, effects] = sinks_.at(handoff);
  if (promise.waiting()) sink.NoRoom(expected_wait_us_, &effects);
  if (promise.has_pages() && !sink.promised()) sink.Promised(now_us, &effects);
  Apply(handoff, now_us);
}

void Sinks::OnOpenAgain(ConnectionId id, const wire::Handoff& handoff, uint32_t resume_from,
                        int64_t now_us) {
  auto& [sink, effects] = sinks_.at(handoff);
  if (sink.connection() == id) {
    sink.OpenAgain(expected_wait_us_, &effects);
    return Apply(handoff, now_us);
  }
  if (sink.connection() != 0) {
    // The source gave up the old connection, even if its end was not noticed here yet.
    const ConnectionId old = sink.connection();
    connections_->Break(old, "the peer connected anew");
    On(ConnectionOver{old, absl::OkStatus(), Loss::kBroken}, now_us);
  }
  if (!sink.suspended()) return;  // the handoff is over, and its last receive is still under way
  sink.Resume(id, resume_from, expected_wait_us_, now_us, &effects);
  Apply(handoff, now_us);
}

// ---- pages ----

void Sinks::BeginPromise(const wire::Handoff& key, int64_t now_us) {
  PagePromise& promise = promises_.at(key);
  if (!promise.ticket().is_named()) {
    waiting_.push_back(key);
    PromiseWaiting(now_us);
  } else if (auto await = awaited_.extract(key.ticket_id)) {
    promise.Name(std::move(await.mapped()), now_us);
    TellPromised(promise, now_us);
  }
}

void Sinks::PromiseWaiting(int64_t now_us) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    PagePromise& promise = promises_.at(*it);
    const auto is_waiting = [this](const wire::Handoff& handoff) {
      return sinks_.at(handoff).machine.waiting();
    };
    if (std::none_of(promise.open().begin(), promise.open().end(), is_waiting)) {
      ++it;  // all are suspended: the promise keeps its place
      continue;
    }
    if (promise.ticket().promise_pages > receive_pool_.free_pages()) break;
    it = waiting_.erase(it);
    promise.Take(now_us, &receive_pool_);
    TellPromised(promise, now_us);
  }
}

void Sinks::TellPromised(const PagePromise& promise, int64_t now_us) {
  for (const wire::Handoff& handoff : promise.open()) {
    auto& [sink, effects] = sinks_.at(handoff);
    sink.Promised(now_us, &effects);
    Apply(handoff, now_us);
  }
}

void Sinks::Settle(int64_t now_us) {
  PromiseWaiting(now_us);
  const ReceivePoolChanged now{.free_pages = receive_pool_.free_pages(),
                               .waiting = static_cast<int32_t>(waiting_.size()),
                               .promises = receive_pool_.promises()};
  if (told_ == now) return;
  told_ = now;
  events_.emplace_back(told_);
}

// ---- chunks ----

void Sinks::On(const ChunkOffered& chunk, int64_t) {
  using Verdict = HandoffSink::Verdict;
  const wire::ChunkHeader& header = chunk.header;
  Sink* sink = Find(header.handoff);
  const auto [verdict, reason] =
      sink != nullptr && sink->machine.connection() == chunk.connection
          ? sink->machine.Check(header)
          : HandoffSink::Decision{Verdict::kRefuse, wire::NackReason::kUnknownTicket};
  if (verdict == Verdict::kAccept) {
    sink->machine.Claim(header, &receive_pool_);
    return receives_.Accept({chunk.announcement, header, sink->machine.PageIds(header)});
  }
  const bool is_new = verdict == Verdict::kRefuse;
  setup_->counters.CountRefusal(is_new ? kRefusals[size_t(reason) - 1] : ChunkRefusal::kDuplicate);
  setup_->link->Refuse(chunk.announcement);
  if (is_new)
    connections_->Send(chunk.connection, wire::Nack{header.handoff, header.chunk_seq, reason});
  if (verdict == Verdict::kAlreadyHere)
    connections_->Send(chunk.connection, wire::Ack{header.handoff, header.chunk_seq});
}

void Sinks::On(const ChunkLanded& event, int64_t now_us) {
  const wire::ChunkHeader header = receives_.header(event.operation);
  auto& [sink, effects] = sinks_.at(header.handoff);
  const HandoffSink::Landing landing = receives_.End(event, sink.gathering());
  sink.Landed(header, landing, now_us, &effects);
  Apply(header.handoff, now_us);
  receives_.PostHeld();
}

void Sinks::RefuseHeld(const wire::Handoff& handoff, int64_t now_us) {
  for (const wire::ChunkHeader& header : receives_.RefuseHeld(handoff)) {
    auto& [sink, effects] = sinks_.at(handoff);
    sink.Landed(header, HandoffSink::Landing::kLost, now_us, &effects);
    Apply(handoff, now_us);
  }
}

// ---- effects, timers and the end ----

void Sinks::Abort(wire::Handoff handoff, absl::Status status, PeerNotice notice, int64_t now_us) {
  auto& [sink, effects] = sinks_.at(handoff);
  sink.Abort(std::move(status), notice, now_us, &effects);
  Apply(handoff, now_us);
  RefuseHeld(handoff, now_us);
}

void Sinks::FailPromise(wire::Handoff key, absl::Status status, int64_t now_us) {
  const auto it = promises_.find(key);
  if (it == promises_.end() || it->second.failed()) return;
  it->second.Fail(status, &receive_pool_, &events_);
  ended_promises_.Add(key.ticket_id, key.epoch, status);
  std::erase(waiting_, key);
  const std::vector<wire::Handoff> open = it->second.open();
  for (const wire::Handoff& handoff : open)
    if (const Sink* sink = Find(handoff); sink != nullptr && !sink->machine.failed())
      Abort(handoff, status, PeerNotice::kCancel, now_us);
  RemoveIfEnded(key);
}

void Sinks::RemoveIfEnded(wire::Handoff key) {
  const auto it = promises_.find(key);
  if (it == promises_.end() || !it->second.ended()) return;
  ended_promises_.Add(key.ticket_id, key.epoch, it->second.status());
  promises_.erase(it);
}

void Sinks::EndUpTo(TicketId id, int64_t epoch, const absl::Status& status, int64_t now_us) {
  for (const wire::Handoff& key : KeysUpTo(promises_, id, epoch)) FailPromise(key, status, now_us);
  for (const wire::Handoff& handoff : KeysUpTo(sinks_, id, epoch))
    if (const Sink* sink = Find(handoff))
      FailPromise(PromiseKey(sink->machine.ticket()), status, now_us);
  const auto it = awaited_.find(id);
  if (it == awaited_.end() || it->second.epoch > epoch) return;
  events_.emplace_back(InflowFailed{id, it->second.epoch, status});
  awaited_.erase(it);
}

void Sinks::Apply(wire::Handoff handoff, int64_t now_us) {
  auto& [sink, sink_effects] = sinks_.at(handoff);
  HandoffEffects effects = std::exchange(sink_effects, {});
  const ConnectionId connection = sink.connection();
  for (const wire::Message& message : effects.messages) connections_->Send(connection, message);
  for (TransferEvent& event : effects.events) events_.push_back(std::move(event));
  if (sink.failed() || sink.ended()) {
    const Ticket ticket = sink.ticket();
    const absl::Status status = sink.status();
    const bool failed = sink.failed();
    PagePromise& promise = promises_.at(PromiseKey(ticket));
    ended_handoffs_.Add(ticket.id, ticket.epoch, status);
    if (sink.complete()) promise.Committed(ticket, sink.record(), now_us, &receive_pool_, &events_);
    if (sink.ended()) {
      sinks_.erase(handoff);
      promise.Ended(ticket, &receive_pool_, &events_);
    }
    if (failed) FailPromise(PromiseKey(ticket), status, now_us);
    RemoveIfEnded(PromiseKey(ticket));
  }
  if (effects.close_connection)
    connections_->Break(connection, "a chunk of an ended handoff does not land");
}

void Sinks::Tick(int64_t now_us) {
  for (const wire::Handoff& key : KeysOf(promises_)) {
    if (absl::Status status = promises_.at(key).Overdue(now_us); !status.ok())
      FailPromise(key, std::move(status), now_us);
  }
  for (const wire::Handoff& handoff : KeysOf(sinks_)) {
    Sink* sink = Find(handoff);
    if (sink == nullptr) continue;  // failed together with an earlier one
    if (absl::Status status = sink->machine.Overdue(now_us); !status.ok()) {
      Abort(handoff, std::move(status), PeerNotice::kCancel, now_us);
      continue;
    }
    sink->machine.Tick(now_us, &sink->effects);
    Apply(handoff, now_us);
  }
}

void Sinks::ShutDown(int64_t now_us) {
  shutting_down_ = true;
  for (const wire::Handoff& key : KeysOf(promises_)) FailPromise(key, ShuttingDown(), now_us);
  while (!awaited_.empty())
    EndUpTo(awaited_.begin()->first, awaited_.begin()->second.epoch, ShuttingDown(), now_us);
}

}  // namespace baton
