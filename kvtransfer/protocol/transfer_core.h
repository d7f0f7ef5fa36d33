// All handoffs of one process over one link: connections and their HELLO, the sources, the sinks,
// the stock of lent pages, the inflows awaited, the bounce slots, the tombstones. Sans-IO:
// commands, link events and the time go in; calls on the Link and TransferEvents come out. The same
// object runs on the link thread (transfer.cc) and, over a MemLink and virtual time, in tests.
//
// Connections are one-way: the source's end connects, and keeps the connection for later handoffs.
// Either end PINGs one that is silent. When one breaks, its handoffs wait for the next one; when
// its peer is silent or breaks the protocol, they end. Owner: the link thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvtransfer/protocol/chunk_slab.h"
#include "kvtransfer/protocol/handoff_sink.h"
#include "kvtransfer/protocol/handoff_source.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/link_meter.h"
#include "kvtransfer/protocol/receive_pool.h"
#include "kvtransfer/protocol/tombstones.h"

namespace baton {

const MachineTable& ConnectionTable();

// How what is left of an attempt ends when a later one comes.
inline absl::Status Superseded() { return absl::AbortedError("the request was dispatched anew"); }

class TransferCore {
 public:
  // `link` outlives the core's last call; on_event must not call back into the core.
  TransferCore(const TransferOptions& options, const PoolView& pool, Link* link,
               std::function<void(TransferEvent)> on_event);
  // InvalidArgument: options and pool that cannot work, said before a core is made.
  static absl::Status Validate(const TransferOptions& options, const PoolView& pool);

  void Handle(TransferCommand command, int64_t now_us);
  void Handle(LinkEvent event, int64_t now_us);
  // Timers, at a grain of kTickUs; cheap in between.
  void Tick(int64_t now_us);
  // Announces chunks: one of each source in turn, at most kPumpBytes. True: there is more.
  // Those of relays' chains go first: others only when no chain has a chunk to announce, and while
  // one has bytes under way a chunk at a time among them all. So a chain waits for one chunk at
  // most, and the others still get on.
  bool Pump(int64_t now_us);

  // Ends every handoff and refuses new ones. When busy() is false all lent pages can be given back.
  void ShutDown(int64_t now_us);
  void CloseConnections(int64_t now_us);
  void GiveLentPagesBack();

  // A handoff is open or awaited, so something may happen at any time.
  bool busy() const { return !sources_.empty() || !sinks_.empty() || !awaited_.empty(); }
  const TransferCounters& counters() const { return counters_; }
  std::vector<LinkReport> links() const;
  uint64_t links_version() const { return links_version_; }  // raised when links() changes
  const ReceivePool& stock() const { return receive_pool_; }
  // Pages of the stock bound to sinks: with those in it, all that were lent and have not come out.
  int32_t bound_pages() const;
  // Operations and slots in use; zero when not busy.
  size_t n_operations() const { return sends_.size() + receives_.size() + held_.size(); }

  static constexpr int64_t kTickUs = 10'000;
  static constexpr int64_t kPumpBytes = 4 << 20;
  static constexpr size_t kMaxOpenHandoffs = 65'536;
  static constexpr size_t kMaxConnections = 1'024;
  static constexpr size_t kMaxPeers = 1'024;

 private:
  using SourceKey = uint64_t;
  using SinkKey = uint64_t;
  enum class ConnectionState { kGreeting, kReady, kClosed };
  struct Connection {
    MachineState<ConnectionState> state;  // ready: HELLO was exchanged
    bool outgoing = false;
    std::string address;
    Incarnation peer = 0;  // outgoing: expected; incoming: told by HELLO
    int64_t opened_us = 0, heard_us = 0, pinged_us = 0;

    bool ready() const { return state == ConnectionState::kReady; }
  };
  enum class Loss {
    kBroken,  // its handoffs go on over the next connection
    kGone     // the peer is given up: they end
  };
  struct Source {
    HandoffSource machine;
    Incarnation peer;
    std::string address;
    ConnectionId connection = 0;                     // 0: none
    int64_t bytes_arrived = 0, bytes_under_way = 0;  // as measured last

    Traffic traffic() const {
      return machine.ticket().is_inflow() ? Traffic::kChain : Traffic::kDecode;
    }
  };
  struct Peer {
    std::string address;
    LinkMeter meter;
    int64_t bytes_under_way = 0;
    std::array<uint64_t, kTraffics> bytes_arrived{};
  };
  struct SendOperation {
    SourceKey source;
    uint32_t chunk_seq;
    std::byte* slot;  // nullptr: read from the pool
  };
  struct Receive {  // accepted by the sink's rules; posted or held for want of a slot
    SinkKey sink;
    ConnectionId connection;
    wire::ChunkHeader header;
    AnnouncementId announcement;
    std::byte* slot = nullptr;
    std::byte* destination = nullptr;
  };

  // Commands.
  void On(OpenHandoff& command, int64_t now_us);
  void On(SendCells& command, int64_t now_us);
  void On(CommitHandoff& command, int64_t now_us);
  void On(LendPages& command, int64_t now_us);
  void On(ReclaimPages& command, int64_t now_us);
  void On(CancelHandoff& command, int64_t now_us);
  void On(AwaitInflow& command, int64_t now_us);

  // Link events.
  void On(const ConnectionAccepted& event, int64_t now_us);
  void On(const MessageArrived& event, int64_t now_us);
  void On(const ChunkAnnounced& event, int64_t now_us);
  void On(const ChunkSent& event, int64_t now_us);
  void On(const ChunkLanded& event, int64_t now_us);
  void On(const ConnectionLost& event, int64_t now_us);

  // Messages. False: this message has no place on this connection.
  bool OnMessage(ConnectionId id, Connection& connection, const wire::Message& message,
                 int64_t now_us);
  void OnHello(ConnectionId id, Connection& connection, const wire::Hello& hello);
  bool OnHelloAck(ConnectionId id, Connection& connection, const wire::HelloAck& ack,
                  int64_t now_us);
  void OnOpen(ConnectionId id, const wire::Open& open, int64_t now_us);
  // OPEN of a handoff that is open here: the same answer again, or it goes on over this connection.
  void OnOpenAgain(ConnectionId id, SinkKey key, uint32_t resume_from, int64_t now_us);
  absl::Status CheckTicket(const Ticket& ticket) const;
  bool OnSourceMessage(ConnectionId id, const wire::Message& message, int64_t now_us);
  bool OnSinkMessage(ConnectionId id, const wire::Message& message, int64_t now_us);
  // To OPEN, COMMIT or CANCEL of a handoff that is not open: how it ended.
  void AnswerEnded(ConnectionId id, const wire::Handoff& handoff);
  std::string HelloDifference(const wire::Hello& hello) const;

  // Connections.
  ConnectionId ConnectionTo(Incarnation peer, const std::string& address, int64_t now_us);
  Connection NewConnection(int64_t now_us) const;
  void ConnectSource(SourceKey key, int64_t now_us);
  void Drop(ConnectionId id, absl::Status status, Loss loss, int64_t now_us);
  void Forget(ConnectionId id, const absl::Status& status, Loss loss, int64_t now_us);
  void TickConnections(int64_t now_us);
  void Send(ConnectionId id, const wire::Message& message);

  // Links.
  void BeginPeer(Incarnation peer, const std::string& address);
  // What the source has brought and has under way, since it was measured last.
  void Measure(Source& source, int64_t now_us);
  void OnPong(Incarnation peer, int64_t round_trip_us);
  int64_t UnderWay(Traffic traffic) const { return under_way_[static_cast<size_t>(traffic)]; }

  // Chunks.
  // False: there is no chunk of this kind to announce now, or no slot for it.
  bool PumpTraffic(Traffic traffic, int64_t* bytes_left, int64_t now_us);
  bool AnnounceNext(SourceKey key, Source& source, int64_t now_us);
  void Refuse(AnnouncementId announcement, ChunkRefusal why);
  void Post(Receive receive);
  void PostHeld();
  // Held chunks of a sink that is over, or whose connection is: never to land.
  void RefuseHeld(SinkKey key, int64_t now_us);

  // Handoffs.
  Source* FindSource(const TicketId& id, SourceKey* key = nullptr);
  HandoffSink* FindSink(const wire::Handoff& handoff, ConnectionId connection,
                        SinkKey* key = nullptr);
  void EndSource(SourceKey key, absl::Status status, bool tell_peer, int64_t now_us);
  void AbortSink(SinkKey key, absl::Status status, HandoffSink::PeerNotice notice, int64_t now_us);
  void PromiseWaiting(int64_t now_us);
  // Sends and emits what a machine wants, and forgets the machine if it is over. May erase it: no
  // reference to it survives the call.
  void ApplySource(SourceKey key, HandoffEffects effects, int64_t now_us);
  void ApplySink(SinkKey key, HandoffEffects effects, int64_t now_us);
  void Emit(TransferEvent event) { on_event_(std::move(event)); }
  // Ends every turn: promises what there is room for, tells of a changed stock.
  void Settle(int64_t now_us);

  // Parts.
  struct OpenPart {
    SinkKey key;
    SinkKey main = 0;  // since it has pages of that handoff
  };
  // The main handoff of a part; 0: it is not open.
  SinkKey FindMain(const Ticket& part) const;
  // Not OK: its main handoff has ended, or belongs to another attempt.
  absl::Status CheckMain(const Ticket& part) const;
  bool HasLaterPart(const TicketId& main, Epoch epoch) const;
  // A new sink: promises pages of its main handoff, or says that it has to wait for that.
  void BeginPart(SinkKey key, int64_t now_us);
  // The main handoff is promised: so are its parts.
  void BindParts(SinkKey main, int64_t now_us);
  void BindPart(SinkKey key, SinkKey main, int64_t now_us);
  // The part's sink is out of sinks_.
  void OnPartEnded(SinkKey key, const HandoffSink& part, int64_t now_us);
  // A main handoff and its parts fail together.
  void FailTogether(const Ticket& ticket, const absl::Status& status, int64_t now_us);
  // All up to this epoch.
  void AbortParts(const TicketId& main, Epoch epoch, const absl::Status& status, int64_t now_us);

  // Inflows.
  std::vector<AwaitInflow>::iterator FindAwaited(const TicketId& id);
  // Not OK: no OPEN for it can be taken any more.
  absl::Status CheckAwait(const AwaitInflow& await);
  // Not OK: the engine awaits something else under this ticket id.
  absl::Status CheckAwaited(const Ticket& ticket);
  // What is awaited under this id, up to this epoch, never comes.
  void FailAwaited(const TicketId& id, Epoch epoch, const absl::Status& status);
  // Ends what is left of attempts before this epoch, open or awaited.
  void EndEarlier(const TicketId& id, Epoch epoch, int64_t now_us);
  // A new sink: promises the pages awaited for it, or says that it has to wait.
  void BeginInflow(SinkKey key, int64_t now_us);

  const TransferOptions options_;
  const PoolView pool_;
  Link* const link_;
  const std::function<void(TransferEvent)> on_event_;
  const HandoffLimits limits_;
  const wire::Identity identity_;
  ChunkSlab send_slab_, receive_slab_;

  std::map<ConnectionId, Connection> connections_;
  // In order of opening: what is done for all is done in the same order in every run.
  std::map<SourceKey, Source> sources_;
  std::map<SinkKey, HandoffSink> sinks_;
  absl::flat_hash_map<TicketId, SourceKey> source_of_;
  absl::flat_hash_map<TicketId, SinkKey> sink_of_;  // the latest epoch's; older ones only drain
  // By their main handoff's ticket, in order of OPEN; it may not be open, or not any more.
  absl::flat_hash_map<TicketId, std::vector<OpenPart>> parts_of_;
  std::deque<SinkKey> waiting_;  // for room, first come first served
  Tombstones tombstones_;
  // Inflows without an OPEN so far, one per ticket id, in order of asking; of this epoch or a later
  // one nothing is open or has ended. No deadline: the engine bounds its prompt's wait and cancels.
  std::vector<AwaitInflow> awaited_;

  absl::flat_hash_map<OperationId, SendOperation> sends_;
  absl::flat_hash_map<OperationId, Receive> receives_;
  std::deque<Receive> held_;
  uint64_t next_id_ = 1;                           // of sources, sinks, operations
  std::array<SourceKey, kTraffics> pump_after_{};  // whose turn was last
  std::array<int64_t, kTraffics> under_way_{};     // bytes
  std::map<Incarnation, Peer> peers_;
  uint64_t links_version_ = 0;

  ReceivePool receive_pool_;
  int64_t expected_wait_us_ = 0;
  ReceivePoolChanged told_;
  int64_t ticked_us_ = 0;
  bool shutting_down_ = false;
  TransferCounters counters_;
};

}  // namespace baton
