// Links of TransferCore: measurements of the links to peers that receive handoffs from this worker.
#include <algorithm>

#include "kvtransfer/protocol/transfer_core.h"

namespace baton {

std::string_view NameOf(Traffic traffic) { return traffic == Traffic::kChain ? "chain" : "decode"; }

void TransferCore::BeginPeer(Incarnation peer, const std::string& address) {
  ++links_version_;
  peers_[peer].address = address;
  if (peers_.size() <= kMaxPeers) return;
  const auto idle = std::find_if(peers_.begin(), peers_.end(), [&](const auto& other) {
    return other.first != peer && std::none_of(sources_.begin(), sources_.end(), [&](auto& source) {
             return source.second.peer == other.first;
           });
  });
  if (idle != peers_.end()) peers_.erase(idle);
}

void TransferCore::Measure(Source& source, int64_t now_us) {
  const auto at = peers_.find(source.peer);
  const int64_t arrived = source.machine.arrived_bytes() - source.bytes_arrived;
  const int64_t change = source.machine.bytes_under_way() - source.bytes_under_way;
  source.bytes_arrived += arrived;
  source.bytes_under_way += change;
  const auto traffic = static_cast<size_t>(source.traffic());
  under_way_[traffic] += change;
  Peer& peer = at->second;
  const bool was_busy = peer.bytes_under_way > 0;
  peer.bytes_under_way += change;
  if (!was_busy && peer.bytes_under_way > 0) peer.meter.Began(now_us);
  if (arrived == 0) return;
  ++links_version_;
  peer.bytes_arrived[traffic] += static_cast<uint64_t>(arrived);
  if (was_busy) peer.meter.Acked(arrived, now_us);
}

void TransferCore::OnPong(Incarnation peer, int64_t round_trip_us) {
  const auto it = peers_.find(peer);
  if (it == peers_.end() || round_trip_us <= 0 || round_trip_us > options_.peer_timeout_ms * 1000)
    return;
  ++links_version_;
  it->second.meter.Answered(round_trip_us);
}

std::vector<LinkReport> TransferCore::links() const {
  std::vector<LinkReport> links;
  for (const auto& [incarnation, peer] : peers_)
    links.push_back({.peer = incarnation,
                     .address = peer.address,
                     .bytes_per_second = peer.meter.bytes_per_second(),
                     .round_trip_us = peer.meter.round_trip_us(),
                     .bytes = peer.bytes_arrived});
  return links;
}

}  // namespace baton
