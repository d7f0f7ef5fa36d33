#include "kvtransfer/protocol/sources.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

Sources::Sources(TransferSetup* setup, PeerConnections* connections, LinkStats* links)
    : setup_(setup),
      connections_(connections),
      links_(links),
      slab_(setup->options.chunk_bytes, setup->options.slab_slots, setup->copier.get(),
            setup->link) {}

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
  if (effects.close_connection && OnLink(id))
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
    if (!BeginNext(source, now_us)) return false;  // no slot: the end of an operation frees one
    after = it->first;
    *bytes_left -= chunk_bytes;
    return true;
  }
  return false;
}

bool Sources::BeginNext(Source& source, int64_t now_us) {
  const HandoffSource::Chunk& chunk = *source.machine.NextChunk();
  const CellRect& rect = chunk.cut.rect;
  SendOperation send{.header = {.handoff = source.machine.handoff(),
                                .plane = static_cast<uint32_t>(rect.plane),
                                .n_planes = static_cast<uint32_t>(rect.n_planes),
                                .first_page = static_cast<uint32_t>(rect.first_page),
                                .n_pages = static_cast<uint32_t>(rect.n_pages),
                                .length = static_cast<uint32_t>(chunk.bytes),
                                .sender = setup_->facts.incarnation,
                                .receiver = source.machine.ticket().sink,
                                .chunk_seq = chunk.seq}};
  const Cells cells{rect, chunk.cut.page_ids, chunk.cut.after};
  const std::byte* payload = setup_->copier->InPlace(cells);
  if (payload == nullptr) {
    // Some slots are reserved for chains, however slow the sinks of other traffic are.
    const bool chain = source.flow.traffic == Traffic::kChain;
    if (slab_.n_free() <= (chain ? 0 : slab_.n_slots() / 8)) return false;
    send.slot = slab_.Take();
  }
  const OperationId operation = next_operation_++;
  sends_[operation] = send;
  uint32_t crc = wire::IdentityCrc(send.header);
  if (payload != nullptr) {
    crc = ExtendCrc32c(crc, payload, send.header.length);
  } else if (setup_->copier->Gather(operation, cells, send.slot, &crc)) {
    payload = send.slot;
  }
  source.machine.Begun();  // `chunk` is gone
  if (payload != nullptr) Announce(operation, payload, crc, now_us);
  return true;
}

void Sources::On(const CellsGathered& event, int64_t now_us) {
  const SendOperation& send = sends_.at(event.operation);
  const uint32_t crc = ExtendCrc32c(wire::IdentityCrc(send.header), send.slot, send.header.length);
  Announce(event.operation, send.slot, crc, now_us);
}

void Sources::Announce(OperationId operation, const std::byte* payload, uint32_t crc,
                       int64_t now_us) {
  SendOperation& send = sends_.at(operation);
  wire::ChunkHeader header = send.header;
  header.payload_crc = crc;
  Source& source = sources_.at(header.handoff.ticket_id);
  if (!source.machine.Announced(header.chunk_seq, crc, now_us)) return Release(operation, now_us);
  send.announced = true;
  connections_->Sign(source.connection, &header, payload);
  ++setup_->counters.chunks_sent;
  setup_->counters.bytes_sent += header.length;
  setup_->link->Announce(source.connection, operation, wire::Encode(header), payload,
                         header.length);
  Apply(header.handoff.ticket_id, now_us);
}

void Sources::On(const ChunkSent& event, int64_t now_us) {
  BATON_CHECK(sends_.at(event.operation).announced);
  Release(event.operation, now_us);
}

void Sources::Release(OperationId operation, int64_t now_us) {
  const SendOperation send = sends_.extract(operation).mapped();
  if (send.slot != nullptr) slab_.Return(send.slot);
  const TicketId& id = send.header.handoff.ticket_id;
  sources_.at(id).machine.Released(send.header.chunk_seq, now_us);
  Apply(id, now_us);
}

bool Sources::OnLink(const TicketId& id) const {
  return std::any_of(sends_.begin(), sends_.end(), [&id](const auto& send) {
    return send.second.announced && send.second.header.handoff.ticket_id == id;
  });
}

}  // namespace baton
