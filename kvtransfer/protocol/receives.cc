#include "kvtransfer/protocol/receives.h"

#include <algorithm>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

Receives::Receives(TransferSetup* setup)
    : setup_(setup), slab_(setup->limits.chunk_bytes, setup->n_slots) {
  setup_->link->Register(slab_.base(), slab_.bytes());
}

void Receives::Accept(const Receive& receive) {
  std::byte* slot = nullptr;
  std::byte* destination = DirectExtent(setup_->pool, RectOf(receive.header), receive.page_ids);
  if (destination == nullptr) {
    destination = slot = slab_.Take();
    if (slot == nullptr) return held_.push_back(receive);
  }
  const OperationId operation = next_operation_++;
  setup_->link->Accept(receive.announcement, operation, destination);
  posted_[operation] = {receive, destination, slot};
}

HandoffSink::Landing Receives::End(const ChunkLanded& landed, bool wanted) {
  const auto it = posted_.find(landed.operation);
  BATON_CHECK(it != posted_.end());
  const auto [receive, destination, slot] = it->second;
  const wire::ChunkHeader& header = receive.header;
  posted_.erase(it);
  auto landing = HandoffSink::Landing::kLost;
  if (landed.ok && wanted) {
    const uint32_t crc = ExtendCrc32c(wire::IdentityCrc(header), destination, header.length);
    landing = crc == header.payload_crc ? HandoffSink::Landing::kVerified
                                        : HandoffSink::Landing::kDamaged;
    if (landing == HandoffSink::Landing::kVerified) {
      ++setup_->counters.chunks_received;
      setup_->counters.bytes_received += header.length;
      if (slot != nullptr) ScatterCells(setup_->pool, RectOf(header), receive.page_ids, slot);
    } else {
      setup_->counters.CountRefusal(ChunkRefusal::kPayload);
    }
  }
  if (slot != nullptr) slab_.Return(slot);
  return landing;
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
