#include "kvtransfer/protocol/link_stats.h"

#include <algorithm>
#include <utility>

namespace baton {

std::string_view NameOf(Traffic traffic) { return traffic == Traffic::kChain ? "chain" : "decode"; }

LinkStats::Flow LinkStats::Begin(Incarnation peer, const std::string& address, Traffic traffic) {
  ++version_;
  Peer& begun = peers_[peer];
  begun.address = address;
  ++begun.n_handoffs;
  if (peers_.size() > kMaxPeers) {
    const auto idle = std::find_if(peers_.begin(), peers_.end(),
                                   [](const auto& other) { return other.second.n_handoffs == 0; });
    if (idle != peers_.end()) peers_.erase(idle);
  }
  return {peer, traffic};
}

void LinkStats::Measure(Flow* flow, int64_t arrived, int64_t under_way, int64_t now_us) {
  const int64_t more_arrived = arrived - std::exchange(flow->arrived, arrived);
  const int64_t more_under_way = under_way - std::exchange(flow->under_way, under_way);
  Peer& peer = peers_.at(flow->peer);
  under_way_[static_cast<size_t>(flow->traffic)] += more_under_way;
  const bool was_busy = peer.bytes_under_way > 0;
  peer.bytes_under_way += more_under_way;
  if (!was_busy && peer.bytes_under_way > 0) peer.meter.Began(now_us);
  if (more_arrived == 0) return;
  ++version_;
  peer.bytes_arrived[static_cast<size_t>(flow->traffic)] += static_cast<uint64_t>(more_arrived);
  if (was_busy) peer.meter.Acked(more_arrived, now_us);
}

void LinkStats::On(const RoundTrip& trip, int64_t) {
  const auto it = peers_.find(trip.peer);
  if (it == peers_.end()) return;
  ++version_;
  it->second.meter.Answered(trip.us);
}

std::vector<LinkReport> LinkStats::links() const {
  std::vector<LinkReport> links;
  for (const auto& [incarnation, peer] : peers_)
    links.push_back({.rate = {.peer = incarnation,
                              .bytes_per_second = peer.meter.bytes_per_second(),
                              .round_trip_us = peer.meter.round_trip_us()},
                     .address = peer.address,
                     .bytes = peer.bytes_arrived});
  return links;
}

}  // namespace baton
