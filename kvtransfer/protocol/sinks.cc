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

wire::Handoff HandoffOf(const Ticket& ticket) { return {ticket.id, ticket.epoch}; }
wire::Handoff MainOf(const Ticket& part) { return {part.part_of, part.epoch}; }

absl::Status CheckTicket(const Ticket& ticket, const TransferSetup& setup) {
  if (!VerifyTicket(setup.facts.key, ticket))
    return absl::PermissionDeniedError("the ticket's signature is wrong");
  if (ticket.sink != setup.facts.incarnation)
    return absl::FailedPreconditionError("the ticket is for another worker");
  const bool promises = ticket.promise_pages > 0;
  if (ticket.kv_pages < 0 || ticket.promise_pages < 0 ||
      (promises ? ticket.promise_pages < ticket.kv_pages : ticket.kv_pages == 0))
    return absl::InvalidArgumentError("the ticket's page counts make no sense");
  if (ticket.is_part()
          ? promises || ticket.first_page < 0 || ticket.part_of == ticket.id
          : ticket.first_page < 0 || ticket.first_page > (promises ? ticket.kv_pages : 0))
    return absl::InvalidArgumentError("the ticket's parts make no sense");
  if (const int32_t n_pages = std::max(ticket.promise_pages, ticket.kv_pages);
      n_pages > setup.pool.n_pages)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", n_pages, " KV pages, this worker has ", setup.pool.n_pages));
  return absl::OkStatus();
}

absl::Status CheckPages(const Ticket& ticket, const AwaitInflow& await) {
  if (ticket.is_inflow() && static_cast<size_t>(ticket.kv_pages) == await.pages.size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ticket is for ", ticket.kv_pages, " KV pages and a promise of ", ticket.promise_pages,
      ticket.is_part() ? ", a part" : "", ", the worker awaits an inflow of ", await.pages.size()));
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

std::vector<wire::Handoff> Sinks::OpenOf(const TicketId& id) const {
  std::vector<wire::Handoff> open;
  for (auto it = sinks_.lower_bound({id, 0}); it != sinks_.end() && it->first.ticket_id == id; ++it)
    open.push_back(it->first);
  if (const auto parts = parts_of_.find(id); parts != parts_of_.end())
    open.insert(open.end(), parts->second.begin(), parts->second.end());
  return open;
}

bool Sinks::HasLater(const TicketId& id, Epoch epoch) const {
  const std::vector<wire::Handoff> open = OpenOf(id);
  return std::any_of(open.begin(), open.end(),
                     [epoch](const wire::Handoff& other) { return other.epoch > epoch; });
}

int32_t Sinks::bound_pages() const {
  int32_t n = 0;
  for (const auto& [handoff, sink] : sinks_) n += sink.machine.bound_pages();
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
  const wire::Handoff handoff{command.ticket_id, command.epoch};
  const auto fail = [&](absl::Status status) {
    events_.emplace_back(InflowFailed{handoff.ticket_id, handoff.epoch, std::move(status)});
  };
  if (shutting_down_) return fail(ShuttingDown());
  if (const auto* entry = tombstones_.Find(handoff.ticket_id, handoff.epoch))
    return fail(entry->status.ok() ? Superseded() : entry->status);
  const auto other = awaited_.find(handoff.ticket_id);
  if (HasLater(handoff.ticket_id, handoff.epoch) ||
      (other != awaited_.end() && other->second.epoch > handoff.epoch))
    return fail(Superseded());
  EndUpTo(handoff.ticket_id, int64_t{handoff.epoch} - 1, Superseded(), now_us);
  Sink* sink = Find(handoff);
  if (sink == nullptr) {
    BATON_CHECK(awaited_.try_emplace(handoff.ticket_id, std::move(command)).second);
  } else if (absl::Status status = CheckPages(sink->machine.ticket(), command); !status.ok()) {
    Abort(handoff, status, PeerNotice::kCancel, now_us);
    fail(std::move(status));
  } else {
    sink->machine.Await(std::move(command), now_us, &sink->effects);
    Apply(handoff, now_us);
  }
}

void Sinks::On(const CancelHandoff& command, int64_t now_us) {
  const absl::Status status = absl::CancelledError("cancelled");
  EndUpTo(command.ticket_id, command.epoch, status, now_us);
  tombstones_.Add(command.ticket_id, command.epoch, status);
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
      connections_->Send(from.connection, tombstones_.AnswerTo(handoff));
    return;
  }
  if (cancel != nullptr)
    return Abort(handoff, wire::ToStatus(cancel->code, cancel->reason), PeerNotice::kCancelled,
                 now_us);
  if (done != nullptr) sink->machine.Handle(*done, now_us, &receive_pool_, &sink->effects);
  if (commit != nullptr) sink->machine.Handle(*commit, now_us, &receive_pool_, &sink->effects);
  Apply(handoff, now_us);
}

absl::Status Sinks::CheckAttempt(const Ticket& ticket) const {
  if (const auto it = awaited_.find(ticket.id); it != awaited_.end()) {
    if (it->second.epoch > ticket.epoch) return Superseded();
    RETURN_IF_ERROR(CheckPages(ticket, it->second));
  }
  if (ticket.is_part()) {
    if (const auto* entry = tombstones_.Find(ticket.part_of, ticket.epoch)) {
      if (entry->epoch > ticket.epoch) return Superseded();
      return entry->status.ok() ? absl::AbortedError("the handoff is complete without this part")
                                : entry->status;
    }
    if (HasLater(ticket.part_of, ticket.epoch)) return Superseded();
  }
  return HasLater(ticket.id, ticket.epoch) ? Superseded() : absl::OkStatus();
}

void Sinks::OnOpen(const SourceMessage& from, const wire::Open& open, int64_t now_us) {
  const Ticket& ticket = open.ticket;
  const wire::Handoff handoff = HandoffOf(ticket);
  const auto refuse = [&](const absl::Status& status) {
    connections_->Send(from.connection, wire::FromStatus<wire::Cancelled>(handoff, status));
  };
  absl::Status status = CheckTicket(ticket, *setup_);
  if (status.ok() && shutting_down_) status = ShuttingDown();
  if (status.ok() && sinks_.size() >= kMaxOpenHandoffs)
    status = absl::ResourceExhaustedError("too many handoffs are open");
  if (!status.ok()) return refuse(status);
  if (tombstones_.Find(ticket.id, ticket.epoch) != nullptr)
    return connections_->Send(from.connection, tombstones_.AnswerTo(handoff));
  if (const Sink* sink = Find(handoff))
    return sink->machine.source() == from.source
               ? OnOpenAgain(from.connection, handoff, open.resume_from, now_us)
               : refuse(absl::AbortedError("the ticket is already open"));
  const int64_t earlier = int64_t{ticket.epoch} - 1;
  EndUpTo(ticket.id, earlier, Superseded(), now_us);
  if (ticket.is_part()) EndUpTo(ticket.part_of, earlier, Superseded(), now_us);
  if (open.resume_from != wire::kNewHandoff)
    return connections_->Send(from.connection, tombstones_.AnswerTo(handoff));
  status = CheckAttempt(ticket);
  if (!status.ok()) {
    EndUpTo(ticket.id, ticket.epoch, status, now_us);
    tombstones_.Add(ticket.id, ticket.epoch, status);
    return refuse(status);
  }
  sinks_.emplace(handoff, Sink{HandoffSink(ticket, from.source, from.connection, &setup_->pool,
                                           setup_->limits, now_us)});
  if (ticket.is_part()) parts_of_[ticket.part_of].push_back(handoff);
  Begin(handoff, now_us);
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

void Sinks::Begin(const wire::Handoff& handoff, int64_t now_us) {
  const Ticket ticket = sinks_.at(handoff).machine.ticket();
  if (ticket.is_part()) {
    PromiseParts(MainOf(ticket), now_us);
  } else if (!ticket.is_inflow()) {
    waiting_.push_back(handoff);
    PromiseWaiting(now_us);
  }
  Sink* sink = Find(handoff);
  if (sink == nullptr || !sink->machine.waiting()) return;
  if (const auto await = awaited_.extract(ticket.id)) {
    sink->machine.Await(std::move(await.mapped()), now_us, &sink->effects);
  } else {
    sink->machine.NoRoom(expected_wait_us_, &sink->effects);
  }
  Apply(handoff, now_us);
}

void Sinks::PromiseWaiting(int64_t now_us) {
  std::vector<wire::Handoff> promised;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const wire::Handoff handoff = *it;
    auto& [sink, effects] = sinks_.at(handoff);
    if (sink.suspended()) {  // keeps its place
      ++it;
      continue;
    }
    if (sink.ticket().promise_pages > receive_pool_.free_pages()) break;
    it = waiting_.erase(it);
    sink.Promise(now_us, &receive_pool_, &effects);
    Apply(handoff, now_us);
    promised.push_back(handoff);
  }
  for (const wire::Handoff& handoff : promised) PromiseParts(handoff, now_us);
}

void Sinks::PromiseParts(const wire::Handoff& main, int64_t now_us) {
  Sink* whole = Find(main);
  if (whole == nullptr || !whole->machine.promised()) return;
  for (const wire::Handoff& handoff : OpenOf(main.ticket_id)) {
    auto& [part, effects] = sinks_.at(handoff);
    if (!part.part() || part.promised() || part.failed() || handoff.epoch != main.epoch) continue;
    if (absl::Status status = whole->machine.CheckPart(part.ticket()); !status.ok())
      return Abort(handoff, std::move(status), PeerNotice::kCancel, now_us);  // and all the others
    part.Await(whole->machine.BeginPart(part.ticket()), now_us, &effects);
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
  if (sink.part()) sinks_.at(MainOf(sink.ticket())).machine.PartLanded(now_us);
  sink.Landed(header, landing, now_us, &receive_pool_, &effects);
  Apply(header.handoff, now_us);
  receives_.PostHeld();
}

void Sinks::RefuseHeld(const wire::Handoff& handoff, int64_t now_us) {
  for (const wire::ChunkHeader& header : receives_.RefuseHeld(handoff)) {
    auto& [sink, effects] = sinks_.at(handoff);
    sink.Landed(header, HandoffSink::Landing::kLost, now_us, &receive_pool_, &effects);
    Apply(handoff, now_us);
  }
}

// ---- effects, timers and the end ----

void Sinks::Abort(wire::Handoff handoff, absl::Status status, PeerNotice notice, int64_t now_us) {
  auto& [sink, effects] = sinks_.at(handoff);
  sink.Abort(std::move(status), notice, now_us, &receive_pool_, &effects);
  std::erase(waiting_, handoff);
  Apply(handoff, now_us);
  RefuseHeld(handoff, now_us);
}

void Sinks::EndUpTo(TicketId id, int64_t epoch, const absl::Status& status, int64_t now_us) {
  for (const wire::Handoff& handoff : OpenOf(id)) {
    const Sink* sink = Find(handoff);
    if (sink != nullptr && !sink->machine.failed() && handoff.epoch <= epoch)
      Abort(handoff, status, PeerNotice::kCancel, now_us);
  }
  const auto it = awaited_.find(id);
  if (it == awaited_.end() || it->second.epoch > epoch) return;
  events_.emplace_back(InflowFailed{id, it->second.epoch, status});
  awaited_.erase(it);
}

void Sinks::Apply(wire::Handoff handoff, int64_t now_us) {
  auto& [sink, sink_effects] = sinks_.at(handoff);
  HandoffEffects effects = std::exchange(sink_effects, {});
  const ConnectionId connection = sink.connection();
  const Ticket ticket = sink.ticket();
  const bool failed = sink.failed();
  const absl::Status status = sink.status();
  for (const wire::Message& message : effects.messages) connections_->Send(connection, message);
  for (TransferEvent& event : effects.events) events_.push_back(std::move(event));
  if (failed || sink.ended()) tombstones_.Add(ticket.id, ticket.epoch, status);
  if (sink.ended()) {
    const HandoffSink ended = std::move(sinks_.extract(handoff).mapped().machine);
    if (const auto parts = parts_of_.find(ticket.part_of); parts != parts_of_.end()) {
      std::erase(parts->second, handoff);
      if (parts->second.empty()) parts_of_.erase(parts);
    }
    if (ended.part() && ended.promised()) {
      auto& [main, main_effects] = sinks_.at(MainOf(ticket));  // does not end before its parts
      main.PartEnded(ended, now_us, &receive_pool_, &main_effects);
      Apply(MainOf(ticket), now_us);
    }
  }
  if (failed) {  // a main handoff and its parts fail together
    const TicketId whole = ticket.is_part() ? ticket.part_of : ticket.id;
    tombstones_.Add(whole, ticket.epoch, status);  // also if its OPEN has not arrived yet
    EndUpTo(whole, ticket.epoch, status, now_us);
  }
  if (effects.close_connection)
    connections_->Break(connection, "a chunk of an ended handoff does not land");
}

void Sinks::Tick(int64_t now_us) {
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
  for (const wire::Handoff& handoff : KeysOf(sinks_))
    if (Find(handoff) != nullptr) Abort(handoff, ShuttingDown(), PeerNotice::kCancel, now_us);
  while (!awaited_.empty())
    EndUpTo(awaited_.begin()->first, awaited_.begin()->second.epoch, ShuttingDown(), now_us);
}

}  // namespace baton
