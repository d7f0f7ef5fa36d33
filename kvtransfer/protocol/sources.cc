#include "kvtransfer/protocol/sources.h"

#include <utility>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

Sources::Sources(TransferSetup* setup, PeerConnections* connections, LinkStats* links)
    : setup_(setup),
      connections_(connections),
      links_(links),
      slab_(setup->options.chunk_bytes, setup->options.slab_slots, setup->link) {}

Sources::Source* Sources::Find(const TicketId& id) {
  const auto it = sources_.find(id);
  return it == sources_.end() ? nullptr : &it->second;
}

// ---- commands ----

void Sources::On(OpenHandoff& command, int64_t now_us) {
  const TicketId id = command.ticket.id;
  const Traffic traffic = command.ticket.is_named() ? Traffic::kChain : Traffic::kDecode;
  Source source{HandoffSource(command.ticket, setup_, now_us), command.peer_address,
                links_->Begin(command.peer, command.peer_address, traffic)};
  const auto [it, is_new] = sources_.emplace(id, std::move(source));
  BATON_CHECK(is_new);
  if (setup_->shutting_down) return End(id, ShuttingDown(), now_us);
  Connect(it->second, now_us);
}

// Commands for an unknown handoff: it ended meanwhile, and its HandoffEnded is on the way to the
// owner.
void Sources::On(SendCells& command, int64_t) {
  if (Source* source = Find(command.ticket_id)) source->machine.Add(std::move(command));
}

void Sources::On(CommitHandoff& command, int64_t now_us) {
  Source* source = Find(command.ticket_id);
  if (source == nullptr) return;
  source->machine.Commit(command.record, now_us);
  Apply(command.ticket_id, now_us);
}

void Sources::On(const CancelHandoff& command, int64_t now_us) {
  const Source* source = Find(command.ticket_id);
  if (source != nullptr && source->machine.ticket().epoch <= command.epoch)
    End(command.ticket_id, absl::CancelledError("cancelled"), now_us);
}

// ---- connections and messages ----

// Connects a source if it is time for it; ConnectionReady continues.
void Sources::Connect(Source& source, int64_t now_us) {
  if (!source.machine.StartConnect(now_us)) return;
  source.connection = connections_->ConnectTo(source.flow.peer, source.address, now_us);
}

void Sources::On(const ConnectionReady& ready, int64_t now_us) {
  for (auto it = sources_.begin(); it != sources_.end();) {
    auto& [id, source] = *it++;  // Apply may erase it
    if (source.connection != ready.connection) continue;
    source.machine.Connected(now_us);
    Apply(id, now_us);
  }
}

void Sources::On(const ConnectionOver& over, int64_t now_us) {
  bool was_used = false;
  for (auto it = sources_.begin(); it != sources_.end();) {
    auto& [id, source] = *it++;
    if (source.connection != over.connection) continue;
    was_used = true;
    source.connection = 0;
    if (over.loss == Loss::kBroken && !setup_->shutting_down) {
      source.machine.ConnectionLost(over.status, now_us);
    } else {
      source.machine.End(over.status, now_us);
    }
    Apply(id, now_us);
  }
  setup_->counters.connections_lost += was_used;
}

void Sources::On(const SinkMessage& from, int64_t now_us) {
  const wire::Handoff& handoff = *wire::HandoffOf(from.message);
  Source* source = Find(handoff.ticket_id);
  if (source != nullptr && source->connection == from.connection &&
      source->machine.ticket().epoch == handoff.epoch) {
    source->machine.Handle(from.message, now_us);
    Apply(handoff.ticket_id, now_us);
  } else if (std::holds_alternative<wire::Cancel>(from.message)) {
    connections_->Send(from.connection, wire::FromStatus<wire::Cancelled>(
                                            handoff, absl::CancelledError("not open here")));
  }
}

// ---- effects, timers and the end ----

void Sources::End(const TicketId& id, absl::Status status, int64_t now_us) {
  sources_.at(id).machine.End(std::move(status), now_us);
  Apply(id, now_us);
}

void Sources::Apply(TicketId id, int64_t now_us) {
  Source& source = sources_.at(id);
  const ConnectionId connection = source.connection;
  const HandoffEffects effects = source.machine.TakeEffects();
  for (const wire::Message& message : effects.messages) connections_->Send(connection, message);
  links_->Measure(&source.flow, source.machine.arrived_bytes(), source.machine.bytes_under_way(),
                  now_us);
  if (source.machine.ended()) {
    links_->End(source.flow);
    sources_.erase(id);
  }
  if (effects.close_connection)
    connections_->Break(connection, "the peer does not let go of a handoff");
}

void Sources::Tick(int64_t now_us) {
  for (auto it = sources_.begin(); it != sources_.end();) {
    auto& [id, source] = *it++;  // Apply erases it if it has ended
    source.machine.Tick(now_us);
    Connect(source, now_us);
    Apply(id, now_us);
  }
}

void Sources::EndAll(int64_t now_us) {
  for (auto it = sources_.begin(); it != sources_.end();)
    End((it++)->first, ShuttingDown(), now_us);
}

// ---- chunks ----

bool Sources::Pump(int64_t now_us) {
  int64_t bytes_left = kPumpBytes;
  while (bytes_left > 0)
    if (!PumpTraffic(Traffic::kChain, &bytes_left, now_us) &&
        !PumpTraffic(Traffic::kDecode, &bytes_left, now_us))
      return false;
  return true;
}

bool Sources::PumpTraffic(Traffic traffic, int64_t* bytes_left, int64_t now_us) {
  if (traffic != Traffic::kChain && links_->under_way(Traffic::kChain) > 0 &&
      links_->under_way(traffic) > 0)
    return false;
  TicketId& after = pump_after_[static_cast<size_t>(traffic)];
  auto it = sources_.upper_bound(after);
  for (size_t n = sources_.size(); n > 0; --n, ++it) {
    if (it == sources_.end()) it = sources_.begin();
    Source& source = it->second;
    if (source.flow.traffic != traffic) continue;
    const HandoffSource::Chunk* chunk = source.machine.NextChunk();
    if (chunk == nullptr) continue;
    const int64_t chunk_bytes = chunk->bytes;
    if (!AnnounceNext(source, now_us)) return false;  // no slot: ChunkSent will free one
    after = it->first;
    *bytes_left -= chunk_bytes;
    return true;
  }
  return false;
}

bool Sources::AnnounceNext(Source& source, int64_t now_us) {
  const HandoffSource::Chunk& chunk = *source.machine.NextChunk();
  const CellRect& rect = chunk.cut.rect;
  wire::ChunkHeader header{.handoff = source.machine.handoff(),
                           .plane = static_cast<uint32_t>(rect.plane),
                           .n_planes = static_cast<uint32_t>(rect.n_planes),
                           .first_page = static_cast<uint32_t>(rect.first_page),
                           .n_pages = static_cast<uint32_t>(rect.n_pages),
                           .length = static_cast<uint32_t>(chunk.bytes),
                           .sender = setup_->facts.incarnation,
                           .receiver = source.machine.ticket().sink,
                           .chunk_seq = chunk.seq};
  const uint32_t identity_crc = wire::IdentityCrc(header);
  const std::byte* payload = DirectExtent(setup_->pool, rect, chunk.cut.page_ids);
  std::byte* slot = nullptr;
  if (payload != nullptr) {
    header.payload_crc = ExtendCrc32c(identity_crc, payload, header.length);
  } else {
    // Some slots are reserved for chains, however slow the sinks of other traffic are.
    const bool chain = source.flow.traffic == Traffic::kChain;
    if (slab_.n_free() <= (chain ? 0 : slab_.n_slots() / 8)) return false;
    slot = slab_.Take();
    header.payload_crc = GatherCells(setup_->pool, rect, chunk.cut.page_ids, slot, identity_crc);
    payload = slot;
  }
  connections_->Sign(source.connection, &header, payload);
  const OperationId operation = next_operation_++;
  sends_[operation] = {.source = header.handoff.ticket_id, .chunk_seq = chunk.seq, .slot = slot};
  ++setup_->counters.chunks_sent;
  setup_->counters.bytes_sent += header.length;
  setup_->link->Announce(source.connection, operation, wire::Encode(header), payload,
                         header.length);
  source.machine.Announced(header.payload_crc, now_us);
  Apply(header.handoff.ticket_id, now_us);
  return true;
}

void Sources::On(const ChunkSent& event, int64_t now_us) {
  const auto it = sends_.find(event.operation);
  BATON_CHECK(it != sends_.end());
  const SendOperation operation = it->second;
  sends_.erase(it);
  if (operation.slot != nullptr) slab_.Return(operation.slot);
  Source& source = sources_.at(operation.source);
  source.machine.ChunkSent(operation.chunk_seq, now_us);
  Apply(operation.source, now_us);
}

}  // namespace baton
