// All handoffs that this process sends: a HandoffSource for each, its connection, its chunks under
// way, and the order in which chunks are read and announced. A chunk is read from the pool by the
// link, or gathered in a slot first. Commands, effects of PeerConnections, the end of gathers and
// sends and the time go in; calls on PeerConnections, CellCopier, Link and LinkStats and
// TransferEvents come out. now_us: microseconds of one monotonic clock. Owner: TransferCore, link
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "kvtransfer/protocol/chunk_slab.h"
#include "kvtransfer/protocol/handoff_source.h"
#include "kvtransfer/protocol/link_stats.h"
#include "kvtransfer/protocol/peer_connections.h"

namespace baton {

class Sources {
 public:
  static constexpr int64_t kPumpBytes = 4 << 20;

  // All outlive this object.
  Sources(TransferSetup* setup, PeerConnections* connections, LinkStats* links);

  void On(OpenHandoff& command, int64_t now_us);
  void On(SendCells& command, int64_t now_us);
  void On(CommitHandoff& command, int64_t now_us);
  void On(const CancelHandoff& command, int64_t now_us);
  void On(const ConnectionReady& ready, int64_t now_us);
  void On(const ConnectionOver& over, int64_t now_us);
  void On(const SinkMessage& from, int64_t now_us);
  void On(const CellsGathered& event, int64_t now_us);
  void On(const ChunkSent& event, int64_t now_us);
  void Tick(int64_t now_us);
  void EndAll(int64_t now_us);  // because this worker shuts down; new ones end as they come
  // Begins chunks: one of each source in turn, at most kPumpBytes. True: more chunks wait. Chunks
  // of relays' chains go first: other chunks are begun only when no chain has a chunk to begin,
  // and, while a chain has bytes under way, one at a time in total. So a chain waits for at most
  // one chunk, and other traffic still progresses. (A copier that ends later: chunks that are
  // gathered are not under way yet, so a chain may wait for those of a turn.)
  bool Pump(int64_t now_us);

  bool empty() const { return sources_.empty(); }
  size_t n_operations() const { return sends_.size(); }

 private:
  struct Source {
    HandoffSource machine;
    std::string address;  // of the peer
    LinkStats::Flow flow;
    ConnectionId connection = 0;  // 0: none
  };
  struct SendOperation {
    wire::ChunkHeader header;   // without what Announce adds
    std::byte* slot = nullptr;  // nullptr: the link reads the pool
    bool announced = false;     // the link reads it; false: it is gathered
  };

  Source* Find(const TicketId& id);  // nullptr: not open here
  void Connect(Source& source, int64_t now_us);
  void End(const TicketId& id, absl::Status status, int64_t now_us);
  // Sends and emits the machine's effects, and erases it if it has ended: no reference to it
  // survives the call.
  void Apply(TicketId id, int64_t now_us);
  // False: no chunk of this kind can be begun now, or no slot is free.
  bool PumpTraffic(Traffic traffic, int64_t* bytes_left, int64_t now_us);
  bool BeginNext(Source& source, int64_t now_us);
  // The operation's bytes are at `payload`, with this CRC of identity and bytes: announces them if
  // that is still possible.
  void Announce(OperationId operation, const std::byte* payload, uint32_t crc, int64_t now_us);
  // Ends an operation: nothing reads its cells or its slot any more.
  void Release(OperationId operation, int64_t now_us);
  // True if the link reads a chunk of this handoff.
  bool OnLink(const TicketId& id) const;

  TransferSetup* const setup_;
  PeerConnections* const connections_;
  LinkStats* const links_;
  ChunkSlab slab_;
  std::map<TicketId, Source> sources_;  // ordered, so that each run has the same order
  absl::flat_hash_map<OperationId, SendOperation> sends_;
  OperationId next_operation_ = 1;
  std::array<TicketId, kTraffics> pump_after_{};  // last source that had its turn
};

}  // namespace baton
