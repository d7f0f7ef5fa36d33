// Chunks of TransferCore: announces the sources' chunks, decides about the peers' chunks, and ends
// each receive.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"
#include "kvtransfer/protocol/transfer_core.h"

namespace baton {
namespace {

ChunkRefusal RefusalOf(wire::NackReason reason) {
  switch (reason) {
    case wire::NackReason::kCrc:
      return ChunkRefusal::kPayload;
    case wire::NackReason::kUnknownTicket:
      return ChunkRefusal::kUnknownHandoff;
    case wire::NackReason::kNotGranted:
      return ChunkRefusal::kNotGranted;
    case wire::NackReason::kBadRange:
      return ChunkRefusal::kBadRange;
    case wire::NackReason::kTooBig:
      return ChunkRefusal::kTooBig;
  }
  return ChunkRefusal::kUnknownHandoff;
}

}  // namespace

std::string_view NameOf(ChunkRefusal refusal) {
  switch (refusal) {
    case ChunkRefusal::kPayload:
      return "payload";
    case ChunkRefusal::kHeader:
      return "header";
    case ChunkRefusal::kLength:
      return "length";
    case ChunkRefusal::kPeer:
      return "peer";
    case ChunkRefusal::kUnknownHandoff:
      return "unknown_handoff";
    case ChunkRefusal::kNotGranted:
      return "not_granted";
    case ChunkRefusal::kBadRange:
      return "bad_range";
    case ChunkRefusal::kTooBig:
      return "too_big";
    case ChunkRefusal::kDuplicate:
      return "duplicate";
  }
  return "";
}

void TransferCore::On(const ChunkAnnounced& event, int64_t now_us) {
  const auto it = connections_.find(event.connection);
  if (it == connections_.end()) return;  // the link has dropped the announcement
  Connection& connection = it->second;
  connection.heard_us = now_us;
  const absl::StatusOr<wire::ChunkHeader> header = wire::DecodeChunkHeader(event.header);
  if (!header.ok() || header->length != event.length) {  // damaged on the way
    Refuse(event.announcement, header.ok() ? ChunkRefusal::kLength : ChunkRefusal::kHeader);
    return Drop(event.connection,
                header.ok() ? absl::DataLossError("a chunk's length is not what its header says")
                            : header.status(),
                Loss::kBroken, now_us);
  }
  if (connection.outgoing || !connection.ready() || header->receiver != facts_.incarnation ||
      header->sender != connection.peer) {
    Refuse(event.announcement, ChunkRefusal::kPeer);
    return Drop(event.connection,
                absl::InvalidArgumentError("the peer announced a chunk that is not for this worker "
                                           "or not from that one"),
                Loss::kGone, now_us);
  }
  SinkKey key;
  HandoffSink* sink = FindSink(header->handoff, event.connection, &key);
  const HandoffSink::Decision decision =
      sink != nullptr
          ? sink->Check(*header)
          : HandoffSink::Decision{HandoffSink::Verdict::kRefuse, wire::NackReason::kUnknownTicket};
  switch (decision.verdict) {
    case HandoffSink::Verdict::kAccept: {
      sink->Claim(*header, &receive_pool_);
      Post({.sink = key,
            .connection = event.connection,
            .header = *header,
            .announcement = event.announcement});
      break;
    }
    case HandoffSink::Verdict::kAlreadyHere:
      Refuse(event.announcement, ChunkRefusal::kDuplicate);
      Send(event.connection, wire::Ack{header->handoff, header->chunk_seq});
      break;
    case HandoffSink::Verdict::kAlreadyComing:
      Refuse(event.announcement, ChunkRefusal::kDuplicate);
      break;
    case HandoffSink::Verdict::kRefuse:
      Refuse(event.announcement, RefusalOf(decision.reason));
      Send(event.connection, wire::Nack{header->handoff, header->chunk_seq, decision.reason});
      break;
  }
}

void TransferCore::Refuse(AnnouncementId announcement, ChunkRefusal why) {
  ++counters_.refused_chunks[static_cast<size_t>(why)];
  link_->Refuse(announcement);
}

void TransferCore::On(const ChunkSent& event, int64_t now_us) {
  const auto it = sends_.find(event.operation);
  BATON_CHECK(it != sends_.end());
  const SendOperation operation = it->second;
  sends_.erase(it);
  if (operation.slot != nullptr) send_slab_.Return(operation.slot);
  HandoffEffects effects;
  sources_.at(operation.source).machine.ChunkSent(operation.chunk_seq, &effects, now_us);
  ApplySource(operation.source, std::move(effects), now_us);
}

void TransferCore::On(const ChunkLanded& event, int64_t now_us) {
  const auto it = receives_.find(event.operation);
  BATON_CHECK(it != receives_.end());
  const Receive receive = it->second;
  receives_.erase(it);
  HandoffSink& sink = sinks_.at(receive.sink);
  auto landing = HandoffSink::Landing::kLost;
  if (event.ok && sink.gathering()) {
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
      ++counters_.refused_chunks[static_cast<size_t>(ChunkRefusal::kPayload)];
    }
  }
  if (receive.slot != nullptr) receive_slab_.Return(receive.slot);
  if (const SinkKey main = sink.part() ? FindMain(sink.ticket()) : 0; main != 0)
    sinks_.at(main).PartLanded(now_us);
  HandoffEffects effects;
  sink.Landed(receive.header, landing, now_us, &receive_pool_, &effects);
  ApplySink(receive.sink, std::move(effects), now_us);
  PostHeld();
}

bool TransferCore::Pump(int64_t now_us) {
  int64_t bytes_left = kPumpBytes;
  while (bytes_left > 0)
    if (!PumpTraffic(Traffic::kChain, &bytes_left, now_us) &&
        !PumpTraffic(Traffic::kDecode, &bytes_left, now_us))
      return false;
  return true;
}

bool TransferCore::PumpTraffic(Traffic traffic, int64_t* bytes_left, int64_t now_us) {
  if (traffic != Traffic::kChain && UnderWay(Traffic::kChain) > 0 && UnderWay(traffic) > 0)
    return false;
  SourceKey& after = pump_after_[static_cast<size_t>(traffic)];
  auto it = sources_.upper_bound(after);
  for (size_t n = sources_.size(); n > 0; --n, ++it) {
    if (it == sources_.end()) it = sources_.begin();
    Source& source = it->second;
    if (source.traffic() != traffic) continue;
    const HandoffSource::Chunk* chunk = source.machine.NextChunk();
    if (chunk == nullptr) continue;
    const int64_t chunk_bytes = chunk->bytes;
    const SourceKey key = it->first;
    if (!AnnounceNext(key, source, now_us)) return false;  // no slot: ChunkSent will free one
    after = key;
    *bytes_left -= chunk_bytes;
    return true;
  }
  return false;
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
                           .sender = facts_.incarnation,
                           .receiver = source.machine.ticket().sink,
                           .chunk_seq = chunk.seq};
  const uint32_t identity_crc = wire::IdentityCrc(header);
  const std::byte* payload = DirectExtent(pool_, rect, chunk.cut.page_ids);
  std::byte* slot = nullptr;
  if (payload != nullptr) {
    header.payload_crc = ExtendCrc32c(identity_crc, payload, header.length);
  } else {
    // Some slots are reserved for chains, however slow the sinks of other traffic are.
    const bool chain = source.traffic() == Traffic::kChain;
    if (send_slab_.n_free() <= (chain ? 0 : send_slab_.n_slots() / 8)) return false;
    slot = send_slab_.Take();
    header.payload_crc = GatherCells(pool_, rect, chunk.cut.page_ids, slot, identity_crc);
    payload = slot;
  }
  const OperationId operation = next_id_++;
  sends_[operation] = {.source = key, .chunk_seq = chunk.seq, .slot = slot};
  ++counters_.chunks_sent;
  counters_.bytes_sent += header.length;
  if (chunk.announced) ++counters_.resent_chunks;
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
    link_->Refuse(receive.announcement);
    HandoffEffects effects;
    sinks_.at(key).Landed(receive.header, HandoffSink::Landing::kLost, now_us, &receive_pool_,
                          &effects);
    ApplySink(key, std::move(effects), now_us);
  }
}

}  // namespace baton
