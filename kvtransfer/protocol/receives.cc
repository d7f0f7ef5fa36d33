#include "kvtransfer/protocol/receives.h"

#include <algorithm>

#include "common/check.h"
#include "kvtransfer/protocol/crc32c.h"

namespace baton {

Receives::Receives(TransferSetup* setup)
    : setup_(setup),
      slab_(setup->options.chunk_bytes, setup->options.slab_slots, setup->copier.get(),
            setup->link) {}

void Receives::Accept(Receive receive) {
  receive.destination = setup_->copier->InPlace(receive.cells);
  if (receive.destination == nullptr) receive.destination = receive.slot = slab_.Take();
  if (receive.destination == nullptr) return held_.push_back(receive);
  const OperationId operation = next_operation_++;
  setup_->link->Accept(receive.announcement, operation, receive.destination);
  posted_[operation] = receive;
}

bool Receives::Verify(const Receive& receive) {
  const wire::ChunkHeader& header = receive.header;
  const uint32_t crc = ExtendCrc32c(wire::IdentityCrc(header), receive.destination, header.length);
  const bool whole = crc == header.payload_crc;
  if (whole && (receive.session == nullptr || receive.session->Verify(header, receive.destination)))
    return true;
  setup_->counters.CountRefusal(whole ? ChunkRefusal::kMac : ChunkRefusal::kPayload);
  return false;
}

Receives::Landing Receives::Land(const ChunkLanded& landed, bool wanted) {
  const auto it = posted_.find(landed.operation);
  BATON_CHECK(it != posted_.end() && !it->second.landed);
  Receive& receive = it->second;
  Landing landing = Landing::kRefused;
  if (landed.ok && wanted && Verify(receive)) {
    ++setup_->counters.chunks_received;
    setup_->counters.bytes_received += receive.header.length;
    receive.landed = true;
    if (receive.slot != nullptr &&
        !setup_->copier->Scatter(landed.operation, receive.cells, receive.slot))
      return Landing::kScattering;
    landing = Landing::kInPlace;
  }
  Erase(landed.operation);
  return landing;
}

void Receives::End(const CellsScattered& scattered) {
  BATON_CHECK(posted_.at(scattered.operation).landed);
  Erase(scattered.operation);
}

void Receives::Erase(OperationId operation) {
  const auto receive = posted_.extract(operation);
  if (receive.mapped().slot != nullptr) slab_.Return(receive.mapped().slot);
}

bool Receives::OnLink(const wire::Handoff& handoff) const {
  return std::any_of(posted_.begin(), posted_.end(), [&handoff](const auto& posted) {
    return posted.second.header.handoff == handoff && !posted.second.landed;
  });
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
