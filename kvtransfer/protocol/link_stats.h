// Measurements of the links to peers that receive handoffs from this worker: a LinkMeter for each
// peer, bytes that arrived, and bytes under way. Peers are remembered after their handoffs, up to a
// bound. The time goes in with each event, reports come out. now_us: microseconds of one monotonic
// clock. Owner: TransferCore, link thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kvtransfer/protocol/link_meter.h"
#include "kvtransfer/protocol/peer_connections.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

class LinkStats {
 public:
  static constexpr size_t kMaxPeers = 1'024;

  // The bytes of one handoff, as last measured.
  struct Flow {
    Incarnation peer = 0;
    Traffic traffic = Traffic::kDecode;
    int64_t arrived = 0, under_way = 0;
  };
  // A handoff begins. Forgets another peer if there are too many and one has no handoff.
  Flow Begin(Incarnation peer, const std::string& address, Traffic traffic);
  // Takes the handoff's bytes that are acknowledged, and under way, by now.
  void Measure(Flow* flow, int64_t arrived, int64_t under_way, int64_t now_us);
  void End(const Flow& flow) { --peers_.at(flow.peer).n_handoffs; }
  void On(const RoundTrip& trip, int64_t now_us);  // ignored if the peer is unknown

  int64_t under_way(Traffic traffic) const { return under_way_[static_cast<size_t>(traffic)]; }
  std::vector<LinkReport> links() const;         // in order of incarnation
  uint64_t version() const { return version_; }  // raised when links() changes

 private:
  struct Peer {
    std::string address;
    LinkMeter meter;
    int n_handoffs = 0;
    int64_t bytes_under_way = 0;
    std::array<uint64_t, kTraffics> bytes_arrived{};
  };
  std::map<Incarnation, Peer> peers_;
  std::array<int64_t, kTraffics> under_way_{};  // bytes, of all peers
  uint64_t version_ = 0;
};

}  // namespace baton
