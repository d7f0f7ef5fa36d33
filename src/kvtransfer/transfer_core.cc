#include "kvtransfer/transfer_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kvtransfer/crc32c.h"

namespace baton {
namespace {

HandoffLimits LimitsOf(const TransferOptions& options, const PoolView& pool) {
  return {.chunk_bytes = std::max(options.chunk_bytes, LargestPlane(pool)),
          .window_bytes = std::max(options.window_bytes, options.chunk_bytes),
          .answer_timeout_us = options.peer_timeout_ms * 1000,
          .stall_timeout_us = 2 * options.peer_timeout_ms * 1000,
          .withhold_acks = options.withhold_acks};
}

wire::Identity IdentityOf(const TransferOptions& options, const PoolView& pool) {
  uint32_t digest = 0;
  for (const PoolPlane& plane : pool.planes)
    digest = ExtendCrc32c(digest, &plane.bytes, sizeof(plane.bytes));
  return {.model_fingerprint = options.model_fingerprint,
          .numerics_id = options.numerics_id,
          .layout_id = options.layout_id,
          .n_planes = static_cast<uint32_t>(pool.planes.size()),
          .plane_digest = digest};
}

// Four windows' worth of slots keeps several handoffs moving; more only costs memory.
int32_t SlotsOf(const TransferOptions& options, const HandoffLimits& limits) {
  if (options.slab_slots > 0) return options.slab_slots;
  return static_cast<int32_t>(
      std::clamp<int64_t>(4 * limits.window_bytes / limits.chunk_bytes, 8, 64));
}

// A copy: what is done for each may erase some.
template <typename Map>
std::vector<uint64_t> KeysOf(const Map& map) {
  std::vector<uint64_t> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

TransferCore::TransferCore(const TransferOptions& options, const PoolView& pool, Link* link,
                           std::function<void(TransferEvent)> on_event)
    : options_(options),
      pool_(pool),
      link_(link),
      on_event_(std::move(on_event)),
      limits_(LimitsOf(options, pool)),
      identity_(IdentityOf(options, pool)),
      send_slab_(limits_.chunk_bytes, SlotsOf(options, limits_)),
      receive_slab_(limits_.chunk_bytes, SlotsOf(options, limits_)) {
  link_->Register(pool_.base, pool_.page_stride * pool_.n_pages);
  link_->Register(send_slab_.base(), send_slab_.bytes());
  link_->Register(receive_slab_.base(), receive_slab_.bytes());
}

absl::Status TransferCore::Validate(const TransferOptions& options, const PoolView& pool) {
  const auto invalid = [](std::string text) { return absl::InvalidArgumentError(std::move(text)); };
  if (pool.base == nullptr || pool.n_pages <= 0 || pool.planes.empty())
    return invalid("KV transfer needs a pool with pages and planes");
  for (const PoolPlane& plane : pool.planes)
    if (plane.offset < 0 || plane.bytes <= 0 || plane.offset + plane.bytes > pool.page_stride)
      return invalid("KV transfer: a plane lies outside its page");
  if (LargestPlane(pool) > kMaxChunkBytes)
    return invalid(absl::StrCat("KV transfer: a plane of a page has ", LargestPlane(pool),
                                " bytes, more than a chunk can carry (", kMaxChunkBytes,
                                "); use smaller pages"));
  if (options.chunk_bytes <= 0 || options.chunk_bytes > kMaxChunkBytes)
    return invalid(absl::StrCat("KV transfer: chunk_bytes ", options.chunk_bytes, " is not in 1..",
                                kMaxChunkBytes));
  if (options.window_bytes <= 0 || options.hello_timeout_ms <= 0 || options.peer_timeout_ms <= 0)
    return invalid("KV transfer: window_bytes and timeouts must be positive");
  if (options.incarnation == 0) return invalid("KV transfer: incarnation must not be 0");
  return absl::OkStatus();
}

// ---- commands ----

void TransferCore::Handle(TransferCommand command, int64_t now_us) {
  std::visit([this, now_us](auto& c) { On(c, now_us); }, command);
  Settle(now_us);
}

void TransferCore::On(OpenHandoff& command, int64_t now_us) {
  CHECK(!source_of_.contains(command.ticket.id));
  const SourceKey key = next_id_++;
  source_of_[command.ticket.id] = key;
  const ConnectionId connection =
      shutting_down_ ? 0 : ConnectionTo(command.peer, command.peer_address, now_us);
  sources_.try_emplace(key,
                       Source{HandoffSource(command.ticket, &pool_, limits_, now_us), connection});
  if (shutting_down_)
    return EndSource(key, absl::UnavailableError("this worker is shutting down"), false, now_us);
  if (!connections_.at(connection).ready) return;
  HandoffEffects effects;
  sources_.at(key).machine.Connected(now_us, &effects);
  ApplySource(key, std::move(effects), now_us);
}

void TransferCore::On(SendCells& command, int64_t) {
  // Unknown: it ended meanwhile, and the owner is about to hear so.
  if (Source* source = FindSource(command.ticket_id)) source->machine.Add(std::move(command));
}

void TransferCore::On(CommitHandoff& command, int64_t now_us) {
  SourceKey key;
  Source* source = FindSource(command.ticket_id, &key);
  if (source == nullptr) return;
  HandoffEffects effects;
  source->machine.Commit(command.record, now_us, &effects);
  ApplySource(key, std::move(effects), now_us);
}

void TransferCore::On(LendPages& command, int64_t) {
  for (const int32_t page : command.pages) CHECK(page >= 0 && page < pool_.n_pages);
  stock_.Lend(command.pages);
  expected_wait_us_ = command.expected_wait_us;
}

void TransferCore::On(ReclaimPages& command, int64_t) {
  Emit(PagesReturned{stock_.Reclaim(command.n)});
}

void TransferCore::On(CancelHandoff& command, int64_t now_us) {
  const absl::Status status = absl::CancelledError("cancelled");
  SourceKey source_key;
  if (Source* source = FindSource(command.ticket_id, &source_key);
      source != nullptr && source->machine.ticket().epoch <= command.epoch)
    EndSource(source_key, status, true, now_us);
  if (const auto it = sink_of_.find(command.ticket_id);
      it != sink_of_.end() && sinks_.at(it->second).ticket().epoch <= command.epoch)
    AbortSink(it->second, status, HandoffSink::Tell::kCancel, now_us);
  tombstones_.Add(command.ticket_id, command.epoch, status);
}

// ---- link events ----

void TransferCore::Handle(LinkEvent event, int64_t now_us) {
  std::visit([this, now_us](const auto& e) { On(e, now_us); }, event);
  Settle(now_us);
}

void TransferCore::On(const ConnectionAccepted& event, int64_t now_us) {
  if (shutting_down_ || connections_.size() >= kMaxConnections)
    return link_->Close(event.connection);
  Connection connection;
  connection.opened_us = connection.heard_us = connection.pinged_us = now_us;
  connections_[event.connection] = std::move(connection);
}

void TransferCore::On(const MessageArrived& event, int64_t now_us) {
  const auto it = connections_.find(event.connection);
  if (it == connections_.end()) return;  // closed by us meanwhile
  it->second.heard_us = now_us;
  const absl::StatusOr<wire::Message> message = wire::Decode(event.bytes);
  if (!message.ok()) return Drop(event.connection, message.status(), now_us);
  if (!OnMessage(event.connection, it->second, *message, now_us))
    Drop(event.connection, absl::InvalidArgumentError("the peer broke the transfer protocol"),
         now_us);
}

void TransferCore::On(const ChunkAnnounced& event, int64_t now_us) {
  const auto it = connections_.find(event.connection);
  if (it == connections_.end()) return;  // the link has dropped the announcement
  Connection& connection = it->second;
  connection.heard_us = now_us;
  const absl::StatusOr<wire::ChunkHeader> header = wire::DecodeChunkHeader(event.header);
  const auto refuse = [&] {
    ++counters_.refused_chunks;
    link_->Refuse(event.announcement);
  };
  if (!header.ok() || connection.outgoing || !connection.ready || header->length != event.length ||
      header->receiver != options_.incarnation || header->sender != connection.peer) {
    refuse();
    return Drop(event.connection,
                header.ok() ? absl::InvalidArgumentError("the peer announced a chunk that is not "
                                                         "for this worker or not from that one")
                            : header.status(),
                now_us);
  }
  SinkKey key;
  HandoffSink* sink = FindSink(header->handoff, event.connection, &key);
  const HandoffSink::Decision decision =
      sink != nullptr
          ? sink->Check(*header)
          : HandoffSink::Decision{HandoffSink::Verdict::kRefuse, wire::NackReason::kUnknownTicket};
  switch (decision.verdict) {
    case HandoffSink::Verdict::kAccept: {
      sink->Claim(*header, &stock_);
      Post({.sink = key,
            .connection = event.connection,
            .header = *header,
            .announcement = event.announcement});
      break;
    }
    case HandoffSink::Verdict::kAlreadyHere:
      refuse();
      Send(event.connection, wire::Ack{header->handoff, header->chunk_seq});
      break;
    case HandoffSink::Verdict::kAlreadyComing:
      refuse();
      break;
    case HandoffSink::Verdict::kRefuse:
      refuse();
      Send(event.connection, wire::Nack{header->handoff, header->chunk_seq, decision.reason});
      break;
  }
}

void TransferCore::On(const ChunkSent& event, int64_t now_us) {
  const auto it = sends_.find(event.operation);
  CHECK(it != sends_.end());
  const SendOperation operation = it->second;
  sends_.erase(it);
  if (operation.slot != nullptr) send_slab_.Return(operation.slot);
  HandoffEffects effects;
  sources_.at(operation.source).machine.ChunkSent(operation.chunk_seq, &effects, now_us);
  ApplySource(operation.source, std::move(effects), now_us);
}

void TransferCore::On(const ChunkLanded& event, int64_t now_us) {
  const auto it = receives_.find(event.operation);
  CHECK(it != receives_.end());
  const Receive receive = it->second;
  receives_.erase(it);
  HandoffSink& sink = sinks_.at(receive.sink);
  auto landing = HandoffSink::Landing::kLost;
  if (event.ok && sink.receiving()) {
    const uint32_t crc =
        ExtendCrc32c(wire::IdentityCrc(receive.header), receive.destination, receive.header.length);
    landing = crc == receive.header.payload_crc ? HandoffSink::Landing::kVerified
                                                : HandoffSink::Landing::kDamaged;
    if (landing == HandoffSink::Landing::kVerified) {
      ++counters_.chunks_received;
      counters_.bytes_received += receive.header.length;
      if (receive.slot != nullptr) {
        ScatterCells(pool_, RectOf(receive.header), sink.PageIds(receive.header), receive.slot);
      }
    } else {
      ++counters_.crc_errors;
    }
  }
  if (receive.slot != nullptr) receive_slab_.Return(receive.slot);
  HandoffEffects effects;
  sink.Landed(receive.header, landing, now_us, &stock_, &effects);
  ApplySink(receive.sink, std::move(effects), now_us);
  PostHeld();
}

void TransferCore::On(const ConnectionLost& event, int64_t now_us) {
  Forget(event.connection, event.status, now_us);
}

// ---- chunks ----

bool TransferCore::Pump(int64_t now_us) {
  int64_t bytes = 0;
  bool any = true;
  while (any && bytes < kPumpBytes) {  // one round per pass: a chunk of each source in turn
    any = false;
    auto it = sources_.upper_bound(pump_after_);
    for (size_t n = sources_.size(); n > 0 && bytes < kPumpBytes; --n) {
      if (it == sources_.end()) it = sources_.begin();
      const auto [key, source] = std::pair<const SourceKey, Source*>(it->first, &it->second);
      ++it;  // announcing changes no other source
      const HandoffSource::Chunk* chunk = source->machine.NextChunk();
      if (chunk == nullptr) continue;
      const int64_t chunk_bytes = chunk->bytes;
      if (!AnnounceNext(key, *source, now_us)) return false;  // no slot: ChunkSent will free one
      pump_after_ = key;
      bytes += chunk_bytes;
      any = true;
    }
  }
  return any;
}

bool TransferCore::AnnounceNext(SourceKey key, Source& source, int64_t now_us) {
  const HandoffSource::Chunk& chunk = *source.machine.NextChunk();
  const CellRect& rect = chunk.cut.rect;
  wire::ChunkHeader header{.handoff = source.machine.handoff(),
                           .plane = static_cast<uint32_t>(rect.plane),
                           .n_planes = static_cast<uint32_t>(rect.n_planes),
                           .first_page = static_cast<uint32_t>(rect.first_page),
                           .n_pages = static_cast<uint32_t>(rect.n_pages),
                           .length = static_cast<uint32_t>(chunk.bytes),
                           .sender = options_.incarnation,
                           .receiver = source.machine.ticket().sink,
                           .chunk_seq = chunk.seq};
  const uint32_t identity_crc = wire::IdentityCrc(header);
  const std::byte* payload = DirectExtent(pool_, rect, chunk.cut.page_ids);
  std::byte* slot = nullptr;
  if (payload != nullptr) {
    header.payload_crc = ExtendCrc32c(identity_crc, payload, header.length);
  } else {
    slot = send_slab_.Take();
    if (slot == nullptr) return false;
    header.payload_crc = GatherCells(pool_, rect, chunk.cut.page_ids, slot, identity_crc);
    payload = slot;
  }
  const OperationId operation = next_id_++;
  sends_[operation] = {.source = key, .chunk_seq = chunk.seq, .slot = slot};
  ++counters_.chunks_sent;
  counters_.bytes_sent += header.length;
  if (chunk.tries > 0) ++counters_.resent_chunks;
  link_->Announce(source.connection, operation, wire::Encode(header), payload, header.length);
  HandoffEffects effects;
  source.machine.Announced(header.payload_crc, now_us, &effects);
  ApplySource(key, std::move(effects), now_us);
  return true;
}

void TransferCore::Post(Receive receive) {
  const HandoffSink& sink = sinks_.at(receive.sink);
  receive.destination = DirectExtent(pool_, RectOf(receive.header), sink.PageIds(receive.header));
  if (receive.destination == nullptr) {
    receive.slot = receive_slab_.Take();
    if (receive.slot == nullptr) {
      held_.push_back(receive);
      return;
    }
    receive.destination = receive.slot;
  }
  const OperationId operation = next_id_++;
  link_->Accept(receive.announcement, operation, receive.destination);
  receives_[operation] = receive;
}

void TransferCore::PostHeld() {
  while (!held_.empty() && !receive_slab_.empty()) {
    const Receive receive = held_.front();
    held_.pop_front();
    Post(receive);
  }
}

void TransferCore::RefuseHeld(SinkKey key, int64_t now_us) {
  std::vector<Receive> dropped;
  std::erase_if(held_, [&](const Receive& receive) {
    if (receive.sink != key) return false;
    dropped.push_back(receive);
    return true;
  });
  for (const Receive& receive : dropped) {
    ++counters_.refused_chunks;
    link_->Refuse(receive.announcement);
    HandoffEffects effects;
    sinks_.at(key).Landed(receive.header, HandoffSink::Landing::kLost, now_us, &stock_, &effects);
    ApplySink(key, std::move(effects), now_us);
  }
}

// ---- handoffs ----

TransferCore::Source* TransferCore::FindSource(const TicketId& id, SourceKey* key) {
  const auto it = source_of_.find(id);
  if (it == source_of_.end()) return nullptr;
  if (key != nullptr) *key = it->second;
  return &sources_.at(it->second);
}

HandoffSink* TransferCore::FindSink(const wire::Handoff& handoff, ConnectionId connection,
                                    SinkKey* key) {
  const auto it = sink_of_.find(handoff.ticket_id);
  if (it == sink_of_.end()) return nullptr;
  HandoffSink& sink = sinks_.at(it->second);
  if (sink.ticket().epoch != handoff.epoch || sink.connection() != connection) return nullptr;
  if (key != nullptr) *key = it->second;
  return &sink;
}

void TransferCore::EndSource(SourceKey key, absl::Status status, bool tell_peer, int64_t now_us) {
  HandoffEffects effects;
  sources_.at(key).machine.End(std::move(status), tell_peer, now_us, &effects);
  ApplySource(key, std::move(effects), now_us);
}

void TransferCore::AbortSink(SinkKey key, absl::Status status, HandoffSink::Tell tell,
                             int64_t now_us) {
  HandoffEffects effects;
  HandoffSink& sink = sinks_.at(key);
  tombstones_.Add(sink.ticket().id, sink.ticket().epoch, status);
  sink.Abort(std::move(status), tell, now_us, &stock_, &effects);
  std::erase(waiting_, key);
  ApplySink(key, std::move(effects), now_us);
  RefuseHeld(key, now_us);
}

void TransferCore::PromiseWaiting(int64_t now_us) {
  while (!waiting_.empty()) {
    const SinkKey key = waiting_.front();
    HandoffSink& sink = sinks_.at(key);
    if (sink.ticket().promise_pages > stock_.free_pages()) return;
    waiting_.pop_front();
    HandoffEffects effects;
    sink.Promise(&stock_, &effects);
    ApplySink(key, std::move(effects), now_us);
  }
}

void TransferCore::ApplySource(SourceKey key, HandoffEffects effects, int64_t now_us) {
  Source& source = sources_.at(key);
  const ConnectionId connection = source.connection;
  for (const wire::Message& message : effects.messages) Send(connection, message);
  if (source.machine.ended()) {
    source_of_.erase(source.machine.ticket().id);
    sources_.erase(key);
  }
  for (TransferEvent& event : effects.events) {
    if (const auto* ended = std::get_if<HandoffEnded>(&event))
      ++(ended->status.ok() ? counters_.handoffs_committed : counters_.handoffs_failed);
    Emit(std::move(event));
  }
  if (effects.close_connection)
    Drop(connection, absl::UnavailableError("the peer does not let go of a handoff"), now_us);
}

void TransferCore::ApplySink(SinkKey key, HandoffEffects effects, int64_t now_us) {
  HandoffSink& sink = sinks_.at(key);
  const ConnectionId connection = sink.connection();
  for (const wire::Message& message : effects.messages) Send(connection, message);
  if (sink.ended()) {
    const Ticket& ticket = sink.ticket();
    tombstones_.Add(ticket.id, ticket.epoch, sink.complete() ? absl::OkStatus() : sink.status());
    if (const auto it = sink_of_.find(ticket.id); it != sink_of_.end() && it->second == key)
      sink_of_.erase(it);
    sinks_.erase(key);
  }
  for (TransferEvent& event : effects.events) Emit(std::move(event));
  if (effects.close_connection)
    Drop(connection, absl::UnavailableError("a chunk of an ended handoff does not land"), now_us);
}

void TransferCore::Settle(int64_t now_us) {
  PromiseWaiting(now_us);
  const auto waiting = static_cast<int32_t>(waiting_.size());
  if (told_.free_pages == stock_.free_pages() && told_.waiting == waiting) return;
  told_ = {stock_.free_pages(), waiting};
  Emit(told_);
}

int32_t TransferCore::bound_pages() const {
  int32_t n = 0;
  for (const auto& [key, sink] : sinks_) n += sink.bound_pages();
  return n;
}

// ---- timers and the end ----

void TransferCore::Tick(int64_t now_us) {
  if (now_us - ticked_us_ < kTickUs) return;
  // If this process itself was stopped, the peers' silence proves nothing yet.
  if (ticked_us_ != 0 && now_us - ticked_us_ > options_.peer_timeout_ms * 1000 / 2)
    for (auto& [id, connection] : connections_) connection.heard_us = now_us;
  ticked_us_ = now_us;
  TickConnections(now_us);
  for (const SourceKey key : KeysOf(sources_)) {
    const auto it = sources_.find(key);
    if (it == sources_.end()) continue;  // went with a connection just dropped
    HandoffEffects effects;
    it->second.machine.Tick(now_us, &effects);
    ApplySource(key, std::move(effects), now_us);
  }
  for (const SinkKey key : KeysOf(sinks_)) {
    const auto it = sinks_.find(key);
    if (it == sinks_.end()) continue;
    HandoffEffects effects;
    it->second.Tick(now_us, &effects);
    ApplySink(key, std::move(effects), now_us);
  }
  Settle(now_us);
}

void TransferCore::ShutDown(int64_t now_us) {
  shutting_down_ = true;
  const absl::Status status = absl::UnavailableError("this worker is shutting down");
  for (const SourceKey key : KeysOf(sources_)) EndSource(key, status, true, now_us);
  for (const SinkKey key : KeysOf(sinks_))
    AbortSink(key, status, HandoffSink::Tell::kCancel, now_us);
  Settle(now_us);
}

void TransferCore::CloseConnections(int64_t now_us) {
  for (const ConnectionId id : KeysOf(connections_))
    Drop(id, absl::UnavailableError("this worker is shutting down"), now_us);
}

void TransferCore::GiveLentPagesBack() { Emit(PagesReturned{stock_.Reclaim(stock_.in_stock())}); }

}  // namespace baton
