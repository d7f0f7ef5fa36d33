#include "kvtransfer/protocol/transfer_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {
namespace {

HandoffLimits LimitsOf(const TransferOptions& options, const PoolView& pool) {
  return {.chunk_bytes = std::max(options.chunk_bytes, LargestPlane(pool)),
          .window_bytes = std::max(options.window_bytes, options.chunk_bytes),
          .answer_timeout_us = options.peer_timeout_ms * 1000,
          .room_timeout_us = options.room_timeout_ms * 1000,
          .stall_timeout_us = 2 * options.peer_timeout_ms * 1000,
          .idle_timeout_us = options.idle_timeout_ms * 1000,
          .reconnect_timeout_us = options.peer_timeout_ms * 1000,
          .transitions = options.transitions};
}

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

// Slots for four windows keep several handoffs moving; more would only cost memory.
int32_t SlotsOf(const TransferOptions& options, const HandoffLimits& limits) {
  if (options.slab_slots > 0) return options.slab_slots;
  return static_cast<int32_t>(
      std::clamp<int64_t>(4 * limits.window_bytes / limits.chunk_bytes, 8, 64));
}

// Copies the keys, because the work for each entry may erase entries.
template <typename Map>
std::vector<uint64_t> KeysOf(const Map& map) {
  std::vector<uint64_t> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

TransferCore::TransferCore(const TransferOptions& options, const TransferFacts& facts,
                           const PoolView& pool, Link* link,
                           std::function<void(TransferEvent)> on_event)
    : options_(options),
      facts_(facts),
      pool_(pool),
      link_(link),
      on_event_(std::move(on_event)),
      limits_(LimitsOf(options, pool)),
      identity_(IdentityOf(facts, pool)),
      send_slab_(limits_.chunk_bytes, SlotsOf(options, limits_)),
      receive_slab_(limits_.chunk_bytes, SlotsOf(options, limits_)) {
  link_->Register(pool_.base,
                  pool_.arena_bytes > 0 ? pool_.arena_bytes : pool_.page_stride * pool_.n_pages);
  link_->Register(send_slab_.base(), send_slab_.bytes());
  link_->Register(receive_slab_.base(), receive_slab_.bytes());
}

absl::Status TransferCore::Validate(const TransferOptions& options, const TransferFacts& facts,
                                    const PoolView& pool) {
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
  if (options.window_bytes <= 0 || options.hello_timeout_ms <= 0 || options.peer_timeout_ms <= 0 ||
      options.room_timeout_ms <= 0 || options.idle_timeout_ms <= 0)
    return invalid("KV transfer: window_bytes and timeouts must be positive");
  if (facts.incarnation == 0) return invalid("KV transfer: incarnation must not be 0");
  return absl::OkStatus();
}

// ---- commands ----

void TransferCore::Handle(TransferCommand command, int64_t now_us) {
  std::visit([this, now_us](auto& c) { On(c, now_us); }, command);
  Settle(now_us);
}

void TransferCore::On(OpenHandoff& command, int64_t now_us) {
  BATON_CHECK(!source_of_.contains(command.ticket.id));
  const SourceKey key = next_id_++;
  source_of_[command.ticket.id] = key;
  sources_.try_emplace(key, Source{HandoffSource(command.ticket, &pool_, limits_, now_us),
                                   command.peer, std::move(command.peer_address)});
  BeginPeer(command.peer, sources_.at(key).address);
  if (shutting_down_)
    return EndSource(key, absl::UnavailableError("this worker is shutting down"), false, now_us);
  ConnectSource(key, now_us);
}

void TransferCore::On(SendCells& command, int64_t) {
  // Unknown handoff: it ended meanwhile, and its HandoffEnded is on the way to the owner.
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
  for (const int32_t page : command.pages) BATON_CHECK(page >= 0 && page < pool_.n_pages);
  receive_pool_.Lend(command.pages);
  expected_wait_us_ = command.expected_wait_us;
}

void TransferCore::On(ReclaimPages& command, int64_t) {
  Emit(PagesReturned{receive_pool_.Reclaim(command.n)});
}

void TransferCore::On(CancelHandoff& command, int64_t now_us) {
  const absl::Status status = absl::CancelledError("cancelled");
  SourceKey source_key;
  if (Source* source = FindSource(command.ticket_id, &source_key);
      source != nullptr && source->machine.ticket().epoch <= command.epoch)
    EndSource(source_key, status, true, now_us);
  if (const auto it = sink_of_.find(command.ticket_id);
      it != sink_of_.end() && sinks_.at(it->second).ticket().epoch <= command.epoch)
    AbortSink(it->second, status, HandoffSink::PeerNotice::kCancel, now_us);
  AbortParts(command.ticket_id, command.epoch, status, now_us);
  FailAwaited(command.ticket_id, command.epoch, status);
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
  connections_.emplace(event.connection, NewConnection(now_us));
}

void TransferCore::On(const MessageArrived& event, int64_t now_us) {
  const auto it = connections_.find(event.connection);
  if (it == connections_.end()) return;  // already closed by this end
  it->second.heard_us = now_us;
  const absl::StatusOr<wire::Message> message = wire::Decode(event.bytes);
  if (!message.ok()) return Drop(event.connection, message.status(), Loss::kBroken, now_us);
  if (!OnMessage(event.connection, it->second, *message, now_us))
    Drop(event.connection, absl::InvalidArgumentError("the peer broke the transfer protocol"),
         Loss::kGone, now_us);
}

void TransferCore::On(const ConnectionLost& event, int64_t now_us) {
  Forget(event.connection, event.status, Loss::kBroken, now_us);
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

void TransferCore::AbortSink(SinkKey key, absl::Status status, HandoffSink::PeerNotice notice,
                             int64_t now_us) {
  HandoffEffects effects;
  HandoffSink& sink = sinks_.at(key);
  tombstones_.Add(sink.ticket().id, sink.ticket().epoch, status);
  sink.Abort(std::move(status), notice, now_us, &receive_pool_, &effects);
  std::erase(waiting_, key);
  ApplySink(key, std::move(effects), now_us);
  RefuseHeld(key, now_us);
}

void TransferCore::PromiseWaiting(int64_t now_us) {
  std::vector<SinkKey> promised;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const SinkKey key = *it;
    HandoffSink& sink = sinks_.at(key);
    if (sink.suspended()) {  // keeps its place
      ++it;
      continue;
    }
    if (sink.ticket().promise_pages > receive_pool_.free_pages()) break;
    it = waiting_.erase(it);
    HandoffEffects effects;
    sink.Promise(now_us, &receive_pool_, &effects);
    ApplySink(key, std::move(effects), now_us);
    promised.push_back(key);
  }
  for (const SinkKey key : promised) BindParts(key, now_us);
}

void TransferCore::ApplySource(SourceKey key, HandoffEffects effects, int64_t now_us) {
  Source& source = sources_.at(key);
  const ConnectionId connection = source.connection;
  for (const wire::Message& message : effects.messages) Send(connection, message);
  Measure(source, now_us);
  counters_.handoffs_resumed += effects.resumed;
  counters_.kept_chunks += effects.kept_chunks;
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
    Drop(connection, absl::UnavailableError("the peer does not let go of a handoff"), Loss::kBroken,
         now_us);
}

void TransferCore::ApplySink(SinkKey key, HandoffEffects effects, int64_t now_us) {
  const HandoffSink& sink = sinks_.at(key);
  const ConnectionId connection = sink.connection();
  const Ticket ticket = sink.ticket();
  const bool failed = sink.failed();
  const absl::Status status = sink.status();
  for (const wire::Message& message : effects.messages) Send(connection, message);
  for (TransferEvent& event : effects.events) Emit(std::move(event));
  if (sink.ended()) {
    tombstones_.Add(ticket.id, ticket.epoch, status);
    if (const auto it = sink_of_.find(ticket.id); it != sink_of_.end() && it->second == key)
      sink_of_.erase(it);
    const auto ended = sinks_.extract(key);
    if (ticket.is_part()) OnPartEnded(key, ended.mapped(), now_us);
  }
  if (failed) FailTogether(ticket, status, now_us);
  if (effects.close_connection)
    Drop(connection, absl::UnavailableError("a chunk of an ended handoff does not land"),
         Loss::kBroken, now_us);
}

void TransferCore::Settle(int64_t now_us) {
  PromiseWaiting(now_us);
  const ReceivePoolChanged now{.free_pages = receive_pool_.free_pages(),
                               .waiting = static_cast<int32_t>(waiting_.size()),
                               .promises = receive_pool_.promises()};
  if (told_ == now) return;
  told_ = now;
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
  // If this process itself was stopped, the silence of peers proves nothing yet.
  if (ticked_us_ != 0 && now_us - ticked_us_ > options_.peer_timeout_ms * 1000 / 2)
    for (auto& [id, connection] : connections_) connection.heard_us = now_us;
  ticked_us_ = now_us;
  TickConnections(now_us);
  for (const SourceKey key : KeysOf(sources_)) {
    const auto it = sources_.find(key);
    if (it == sources_.end()) continue;  // ended with a connection that was just dropped
    HandoffEffects effects;
    it->second.machine.Tick(now_us, &effects);
    const bool connect = it->second.machine.wants_connection(now_us);
    ApplySource(key, std::move(effects), now_us);
    if (connect) ConnectSource(key, now_us);
  }
  for (const SinkKey key : KeysOf(sinks_)) {
    const auto it = sinks_.find(key);
    if (it == sinks_.end()) continue;
    if (absl::Status status = it->second.Overdue(now_us); !status.ok()) {
      AbortSink(key, std::move(status), HandoffSink::PeerNotice::kCancel, now_us);
      continue;
    }
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
    if (sinks_.contains(key)) AbortSink(key, status, HandoffSink::PeerNotice::kCancel, now_us);
  while (!awaited_.empty()) FailAwaited(awaited_.front().ticket_id, awaited_.front().epoch, status);
  Settle(now_us);
}

void TransferCore::CloseConnections(int64_t now_us) {
  for (const ConnectionId id : KeysOf(connections_))
    Drop(id, absl::UnavailableError("this worker is shutting down"), Loss::kGone, now_us);
}

void TransferCore::GiveLentPagesBack() {
  Emit(PagesReturned{receive_pool_.Reclaim(receive_pool_.in_pool())});
}

}  // namespace baton
