#include "kvtransfer/protocol/sinks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

// By NackReason, from kCrc on.
constexpr ChunkRefusal kRefusals[] = {ChunkRefusal::kPayload, ChunkRefusal::kUnknownHandoff,
                                      ChunkRefusal::kNotGranted, ChunkRefusal::kBadRange,
                                      ChunkRefusal::kTooBig};

// Status of the rest of an attempt that a later attempt replaces.
absl::Status Superseded() { return absl::AbortedError("the request was dispatched anew"); }

// The part of the wait for free pages that a promise has: none while it waits only for the engine's
// word on the pages that it holds, which comes between two of its steps.
int64_t WaitFor(const PagePromise& promise, const ReceivePool& pool, int64_t wait_us) {
  const bool has_room = promise.pages_to_take() <= pool.free_pages();
  return promise.awaits_held() && has_room ? 0 : wait_us;
}

wire::Handoff PromiseKey(const Ticket& ticket) { return {ticket.promise, ticket.epoch}; }

absl::Status CheckCounts(const Ticket& ticket, const TransferSetup& setup) {
  if (ticket.kv_pages < 0 || ticket.promise_pages < 0 ||
      (ticket.is_named() ? ticket.kv_pages == 0 : ticket.promise_pages < ticket.kv_pages))
    return absl::InvalidArgumentError("the ticket's page counts make no sense");
  if (ticket.first_page < 0 || ticket.n_pages < 0 || (ticket.n_pages == 0 && ticket.kv_pages > 0) ||
      int64_t{ticket.first_page} + ticket.n_pages > ticket.kv_pages || ticket.held_pages < 0)
    return absl::InvalidArgumentError("the ticket's range makes no sense");
  if (const int32_t n_pages = std::max(ticket.promise_pages, ticket.kv_pages);
      n_pages > setup.pool.n_pages)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", n_pages, " KV pages, this worker has ", setup.pool.n_pages));
  return absl::OkStatus();
}

// Counts a ticket that is refused, and returns why.
absl::Status CheckTicket(const Ticket& ticket, Incarnation source, TransferSetup& setup) {
  const auto refuse = [&setup](TicketRefusal why, absl::Status status) {
    setup.counters.CountRefusal(why);
    return status;
  };
  using enum TicketRefusal;
  if (ticket.key_id != KeyIdOf(setup.facts.key))
    return refuse(kOtherKey, absl::PermissionDeniedError("the ticket is of another cluster key"));
  if (!VerifyTicket(setup.facts.key, ticket))
    return refuse(kSignature, absl::PermissionDeniedError("the ticket's signature is wrong"));
  if (ticket.sink != setup.facts.incarnation)
    return refuse(kOtherSink, absl::FailedPreconditionError("the ticket is for another worker"));
  if (ticket.source != source)
    return refuse(kOtherSource,
                  absl::PermissionDeniedError("the ticket is for another source's KV"));
  absl::Status status = CheckCounts(ticket, setup);
  return status.ok() ? status : refuse(kMalformed, std::move(status));
}

void CheckPages(const std::vector<int32_t>& pages, const TransferSetup& setup) {
  for (const int32_t page : pages) BATON_CHECK(page >= 0 && page < setup.pool.n_pages);
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
      "payload",     "header",    "length",  "peer",      "unknown_handoff",
      "not_granted", "bad_range", "too_big", "duplicate", "mac"};
  return kNames[static_cast<size_t>(refusal)];
}

std::string_view NameOf(PeerRefusal refusal) {
  static constexpr std::string_view kNames[kPeerRefusals] = {
      "silent", "no_hello", "other_key", "proof", "differs", "crowded", "forged", "repeated"};
  return kNames[static_cast<size_t>(refusal)];
}

std::string_view NameOf(TicketRefusal refusal) {
  static constexpr std::string_view kNames[kTicketRefusals] = {
      "other_key", "signature", "other_sink", "other_source", "malformed", "expired"};
  return kNames[static_cast<size_t>(refusal)];
}

Sinks::Sinks(TransferSetup* setup, PeerConnections* connections)
    : setup_(setup), connections_(connections), receives_(setup) {}

HandoffSink* Sinks::Find(const wire::Handoff& handoff) {
  const auto it = sinks_.find(handoff);
  return it == sinks_.end() ? nullptr : &it->second;
}

int32_t Sinks::bound_pages() const {
  int32_t n = 0;
  for (const auto& [key, promise] : promises_) n += promise.bound_pages() + promise.n_held();
  for (const auto& [key, pages] : held_) n += static_cast<int32_t>(pages.size());
  return n;
}

// ---- commands ----

void Sinks::On(LendPages& command, int64_t) {
  CheckPages(command.pages, *setup_);
  receive_pool_.Lend(command.pages, command.after);
  expected_wait_us_ = command.expected_wait_us;
}

void Sinks::On(ReclaimPages& command, int64_t) {
  setup_->events.emplace_back(PagesReturned{receive_pool_.Reclaim(command.n)});
}

void Sinks::On(LendHeld& command, int64_t) {
  CheckPages(command.pages, *setup_);
  const wire::Handoff key{command.ticket_id, command.epoch};
  if (const auto it = promises_.find(key); it != promises_.end())
    return GiveBack(it->second.Hold(std::move(command.pages)));
  const bool is_over = setup_->shutting_down || HasLater(promises_, key.ticket_id, key.epoch) ||
                       ended_promises_.Find(key.ticket_id, key.epoch) != nullptr;
  if (is_over || held_.contains(key)) return GiveBack(std::move(command.pages));
  held_[key] = std::move(command.pages);
}

void Sinks::On(ReclaimHeld&, int64_t) {
  for (auto& [key, pages] : held_) GiveBack(std::exchange(pages, {}));  // the key says it was told
  for (const wire::Handoff& key : waiting_) GiveBack(promises_.at(key).Hold({}));
}

void Sinks::GiveBack(std::vector<int32_t> pages) {
  if (!pages.empty()) setup_->events.emplace_back(PagesReturned{std::move(pages)});
}

void Sinks::On(AwaitInflow& command, int64_t now_us) {
  CheckPages(command.pages, *setup_);
  const wire::Handoff key{command.ticket_id, command.epoch};
  const auto fail = [&](absl::Status status) {
    setup_->events.emplace_back(InflowFailed{key.ticket_id, key.epoch, std::move(status)});
  };
  if (setup_->shutting_down) return fail(ShuttingDown());
  if (const auto* entry = ended_promises_.Find(key.ticket_id, key.epoch))
    return fail(entry->status.ok() ? Superseded() : entry->status);
  if (HasLater(promises_, key.ticket_id, key.epoch)) return fail(Superseded());
  EndUpTo(key.ticket_id, int64_t{key.epoch} - 1, Superseded(), now_us);
  const Ticket to_come{.epoch = key.epoch,
                       .promise = key.ticket_id,
                       .kv_pages = static_cast<int32_t>(command.pages.size())};
  PagePromise& promise =
      promises_.try_emplace(key, to_come, setup_, &receive_pool_, now_us).first->second;
  if (absl::Status status = promise.Name(std::move(command), now_us); !status.ok()) {
    FailPromise(key, status, now_us);
    return fail(std::move(status));
  }
  TellPromised(promise, now_us);
}

void Sinks::On(const CancelPromises& command, int64_t now_us) {
  const absl::Status why = setup_->shutting_down
                               ? ShuttingDown()
                               : absl::AbortedError("this worker has lost the request's router");
  if (!command.router)
    for (auto& [key, pages] : std::exchange(held_, {})) GiveBack(std::move(pages));
  // Inflows that nobody has opened name no request: their prompts cancel them.
  for (const wire::Handoff& key : KeysOf(promises_)) {
    const auto promise = promises_.find(key);  // gone: it failed with an earlier one
    if (promise == promises_.end()) continue;
    if (!command.router || RouterOf(promise->second.ticket().request_id) == *command.router)
      FailPromise(key, why, now_us);
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
    HandoffSink* sink = Find(handoff);  // nullptr: already failed together with an earlier one
    if (sink == nullptr || sink->connection() != over.connection) continue;
    was_used = true;
    sink->ConnectionLost(now_us);
    if (over.loss == Loss::kGone || setup_->shutting_down) sink->Abort(over.status, now_us);
    Apply(handoff, now_us);
  }
  setup_->counters.connections_lost += was_used;
}

void Sinks::On(const SourceMessage& from, int64_t now_us) {
  if (const auto* open = std::get_if<wire::Open>(&from.message)) return OnOpen(from, *open, now_us);
  const wire::Handoff& handoff = *wire::HandoffOf(from.message);
  HandoffSink* sink = Find(handoff);
  if (sink != nullptr && sink->connection() == from.connection) {
    sink->Handle(from.message, now_us);
    Apply(handoff, now_us);
  } else if (std::holds_alternative<wire::Commit>(from.message) ||
             std::holds_alternative<wire::Cancel>(from.message)) {
    // OPEN of this epoch is already processed or will never come: connections keep order.
    connections_->Send(from.connection, ended_handoffs_.AnswerTo(handoff));
  }
}

absl::Status Sinks::CheckAttempt(const Ticket& ticket) const {
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
  absl::Status status = CheckTicket(ticket, from.source, *setup_);
  if (status.ok() && setup_->shutting_down) status = ShuttingDown();
  if (status.ok() && sinks_.size() >= kMaxOpenHandoffs)
    status = absl::ResourceExhaustedError("too many handoffs are open");
  if (!status.ok()) return refuse(status);
  if (ended_handoffs_.Find(ticket.id, ticket.epoch) != nullptr)
    return connections_->Send(from.connection, ended_handoffs_.AnswerTo(handoff));
  if (const HandoffSink* sink = Find(handoff))
    return sink->source() == from.source
               ? OnOpenAgain(from.connection, handoff, open.resume_from, now_us)
               : refuse(absl::AbortedError("the ticket is already open"));
  if (now_us >= ticket.expires_us || ticket.expires_us <= ended_handoffs_.forgotten_us()) {
    setup_->counters.CountRefusal(TicketRefusal::kExpired);
    return refuse(absl::DeadlineExceededError("the ticket has expired"));
  }
  EndUpTo(ticket.promise, int64_t{ticket.epoch} - 1, Superseded(), now_us);
  if (open.resume_from != wire::kNewHandoff)
    return connections_->Send(from.connection, ended_handoffs_.AnswerTo(handoff));
  status = CheckAttempt(ticket);
  if (!status.ok()) {  // with all of the promise
    EndUpTo(ticket.promise, ticket.epoch, status, now_us);
    ended_handoffs_.Add(ticket.id, ticket.epoch, status, ticket.expires_us);
    return refuse(status);
  }
  const auto [it, is_new] = promises_.try_emplace(key, ticket, setup_, &receive_pool_, now_us);
  PagePromise& promise = it->second;
  promise.Begin(ticket, now_us);
  HandoffSink& sink =
      sinks_.try_emplace(handoff, ticket, from.source, from.connection, &promise, setup_, now_us)
          .first->second;
  if (is_new && !ticket.is_named()) {
    if (auto held = held_.extract(key)) GiveBack(promise.Hold(std::move(held.mapped())));
    waiting_.push_back(key);
    PromiseWaiting(now_us);
  }
  if (promise.waiting()) {
    sink.Answer(WaitFor(promise, receive_pool_, expected_wait_us_));
  } else if (sink.state() == HandoffSink::State::kWaiting) {
    sink.Promised();
  }
  Apply(handoff, now_us);
}

void Sinks::OnOpenAgain(ConnectionId id, const wire::Handoff& handoff, uint32_t resume_from,
                        int64_t now_us) {
  HandoffSink& sink = sinks_.at(handoff);
  const PagePromise& promise = promises_.at(PromiseKey(sink.ticket()));
  const int64_t wait_us = WaitFor(promise, receive_pool_, expected_wait_us_);
  if (sink.connection() == id) {
    sink.Answer(wait_us);
    return Apply(handoff, now_us);
  }
  if (sink.connection() != 0) {
    // The source gave up the old connection, even if its end was not noticed here yet.
    const ConnectionId old = sink.connection();
    connections_->Break(old, "the peer connected anew");
    On(ConnectionOver{old, absl::OkStatus(), Loss::kBroken}, now_us);
  }
  if (sink.state() != HandoffSink::State::kSuspended)
    return;  // the handoff is over, and its last receive is still under way
  sink.Resume(id, resume_from, wait_us, now_us);
  Apply(handoff, now_us);
}

// ---- pages ----

void Sinks::PromiseWaiting(int64_t now_us) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    PagePromise& promise = promises_.at(*it);
    const auto is_waiting = [this](const wire::Handoff& handoff) {
      return sinks_.at(handoff).state() == HandoffSink::State::kWaiting;
    };
    if (std::none_of(promise.open().begin(), promise.open().end(), is_waiting)) {
      ++it;  // all are suspended: the promise keeps its place
      continue;
    }
    if (promise.awaits_held()) {
      ++it;
      continue;
    }
    if (promise.pages_to_take() > receive_pool_.free_pages()) break;
    it = waiting_.erase(it);
    promise.Take(now_us);
    setup_->counters.held_pages += static_cast<uint64_t>(promise.n_held());
    TellPromised(promise, now_us);
  }
}

void Sinks::TellPromised(const PagePromise& promise, int64_t now_us) {
  for (const wire::Handoff& handoff : promise.open()) {
    sinks_.at(handoff).Promised();
    Apply(handoff, now_us);
  }
}

void Sinks::Settle(int64_t now_us) {
  PromiseWaiting(now_us);
  size_t n_held = 0;  // pages of promises without their other pages
  for (const auto& [key, pages] : held_) n_held += pages.size();
  for (const wire::Handoff& key : waiting_)
    n_held += static_cast<size_t>(promises_.at(key).n_held());
  const ReceivePoolChanged now{.free_pages = receive_pool_.free_pages(),
                               .waiting = static_cast<int32_t>(waiting_.size()),
                               .held_pages = static_cast<int32_t>(n_held),
                               .promises = receive_pool_.promises()};
  if (told_ == now) return;
  told_ = now;
  setup_->events.emplace_back(told_);
}

// ---- chunks ----

void Sinks::On(const ChunkOffered& chunk, int64_t) {
  using Verdict = HandoffSink::Verdict;
  const wire::ChunkHeader& header = chunk.header;
  HandoffSink* sink = Find(header.handoff);
  const auto [verdict, reason] =
      sink != nullptr && sink->connection() == chunk.connection
          ? sink->Check(header)
          : HandoffSink::Decision{Verdict::kRefuse, wire::NackReason::kUnknownTicket};
  if (verdict == Verdict::kAccept)
    return receives_.Accept({chunk.announcement, header, sink->Claim(header), chunk.session});
  const bool is_new = verdict == Verdict::kRefuse;
  setup_->counters.CountRefusal(is_new ? kRefusals[size_t(reason) - 1] : ChunkRefusal::kDuplicate);
  setup_->link->Refuse(chunk.announcement);
  if (is_new)
    connections_->Send(chunk.connection, wire::Nack{header.handoff, header.chunk_seq, reason});
  if (verdict == Verdict::kAlreadyHere)
    connections_->Send(chunk.connection, wire::Ack{header.handoff, header.chunk_seq});
}

void Sinks::On(const ChunkLanded& event, int64_t now_us) {
  using Landing = Receives::Landing;
  const wire::ChunkHeader header = receives_.header(event.operation);
  HandoffSink& sink = sinks_.at(header.handoff);
  const Landing landing = receives_.Land(event, sink.gathering());
  if (landing == Landing::kScattering) return;
  sink.Landed(header, landing == Landing::kInPlace, now_us);
  Apply(header.handoff, now_us);
  receives_.PostHeld();
}

void Sinks::On(const CellsScattered& event, int64_t now_us) {
  const wire::ChunkHeader header = receives_.header(event.operation);
  receives_.End(event);
  sinks_.at(header.handoff).Landed(header, /*verified=*/true, now_us);
  Apply(header.handoff, now_us);
  receives_.PostHeld();
}

// ---- effects, timers and the end ----

void Sinks::FailPromise(wire::Handoff key, absl::Status status, int64_t now_us) {
  const auto it = promises_.find(key);
  if (it == promises_.end() || it->second.failed()) return;
  it->second.Fail(status);
  ended_promises_.Add(key.ticket_id, key.epoch, status);
  std::erase(waiting_, key);
  const std::vector<wire::Handoff> open = it->second.open();
  for (const wire::Handoff& handoff : open) {
    HandoffSink* sink = Find(handoff);
    if (sink == nullptr || sink->failed()) continue;
    sink->Abort(status, now_us);
    Apply(handoff, now_us);
  }
  RemoveIfEnded(key);
}

void Sinks::RemoveIfEnded(wire::Handoff key) {
  const auto it = promises_.find(key);
  if (it == promises_.end() || !it->second.ended()) return;
  ended_promises_.Add(key.ticket_id, key.epoch, it->second.status());
  promises_.erase(it);
}

void Sinks::EndUpTo(TicketId id, int64_t epoch, const absl::Status& status, int64_t now_us) {
  for (const wire::Handoff& key : KeysUpTo(held_, id, epoch))
    GiveBack(std::move(held_.extract(key).mapped()));
  for (const wire::Handoff& key : KeysUpTo(promises_, id, epoch)) FailPromise(key, status, now_us);
  for (const wire::Handoff& handoff : KeysUpTo(sinks_, id, epoch))
    if (const HandoffSink* sink = Find(handoff))
      FailPromise(PromiseKey(sink->ticket()), status, now_us);
}

void Sinks::Apply(wire::Handoff handoff, int64_t now_us) {
  HandoffSink& sink = sinks_.at(handoff);
  const ConnectionId connection = sink.connection();
  if (connection == 0 || sink.failed())
    for (const wire::ChunkHeader& header : receives_.RefuseHeld(handoff))
      sink.Landed(header, /*verified=*/false, now_us);
  const HandoffEffects effects = sink.TakeEffects();
  for (const wire::Message& message : effects.messages) connections_->Send(connection, message);
  if (sink.failed() || sink.ended()) {
    const wire::Handoff key = PromiseKey(sink.ticket());
    const absl::Status status = sink.status();
    const bool failed = sink.failed();
    ended_handoffs_.Add(handoff.ticket_id, handoff.epoch, status, sink.ticket().expires_us);
    if (sink.ended()) sinks_.erase(handoff);
    if (failed) FailPromise(key, status, now_us);
    RemoveIfEnded(key);
  }
  if (effects.close_connection && receives_.OnLink(handoff))
    connections_->Break(connection, "a chunk of an ended handoff does not land");
}

void Sinks::Tick(int64_t now_us) {
  for (const wire::Handoff& key : KeysOf(promises_)) {
    if (absl::Status status = promises_.at(key).Overdue(now_us); !status.ok())
      FailPromise(key, std::move(status), now_us);
  }
  for (const wire::Handoff& handoff : KeysOf(sinks_)) {
    HandoffSink* sink = Find(handoff);
    if (sink == nullptr) continue;  // failed together with an earlier one
    sink->Tick(now_us);
    Apply(handoff, now_us);
  }
}

}  // namespace baton
