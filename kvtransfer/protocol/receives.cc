#include "kvtransfer/protocol/receives.h"

#include <algorithm>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

Receives::Receives(TransferSetup* setup)
    : setup_(setup), slab_(setup->options.chunk_bytes, setup->options.slab_slots, setup->link) {}

void Receives::Accept(Receive receive) {
  receive.destination = DirectExtent(setup_->pool, RectOf(receive.header), receive.page_ids);
  if (receive.destination == nullptr) receive.destination = receive.slot = slab_.Take();
  if (receive.destination == nullptr) return held_.push_back(receive);
  const OperationId operation = next_operation_++;
  setup_->link->Accept(receive.announcement, operation, receive.destination);
  posted_[operation] = receive;
}

bool Receives::End(const ChunkLanded& landed, bool wanted) {
  const auto it = posted_.find(landed.operation);
  BATON_CHECK(it != posted_.end());
  const auto [announcement, header, page_ids, session, destination, slot] = it->second;
  posted_.erase(it);
  bool verified = false;
  if (landed.ok && wanted) {
    const uint32_t crc = ExtendCrc32c(wire::IdentityCrc(header), destination, header.length);
    const bool whole = crc == header.payload_crc;
    verified = whole && (session == nullptr || session->Verify(header, destination));
    if (verified) {
      ++setup_->counters.chunks_received;
      setup_->counters.bytes_received += header.length;
      if (slot != nullptr) ScatterCells(setup_->pool, RectOf(header), page_ids, slot);
    } else {
      setup_->counters.CountRefusal(whole ? ChunkRefusal::kMac : ChunkRefusal::kPayload);
    }
  }
  if (slot != nullptr) slab_.Return(slot);
  return verified;
}

void Receives::PostHeld() {
  while (!held_.empty() && !slab_.empty()) {
    const Receive receive = held_.front();
    held_.pop_front();
    Accept(receive);
  }
}

std::vector<wire::ChunkHeader> Receives::RefuseHeld(const wire::Handoff& handoff) {
  std::vector<wire::ChunkHeader> refused;
  std::erase_if(held_, [&](const Receive& receive) {
    if (receive.header.handoff != handoff) return false;
    setup_->link->Refuse(receive.announcement);
    refused.push_back(receive.header);
    return true;
  });
  return refused;
}

}  // namespace baton
