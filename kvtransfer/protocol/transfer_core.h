// All handoffs of one process over one link: connections and their HELLO, the sources, the sinks,
// the receive pool, the awaited inflows, the bounce slots, the tombstones. Sans-IO: commands, link
// events and the time go in; calls on the Link and TransferEvents come out. The same object runs on
// the link thread (transfer.cc) and, over a MemLink and virtual time, in tests.
//
// Connections are one-way: the source's end connects, and keeps the connection for later handoffs.
// Either end PINGs a silent connection. When a connection breaks, its handoffs wait for the next
// one; when its peer stays silent or breaks the protocol, they end. now_us: microseconds of one
// monotonic clock. Owner: the link thread. docs/HANDOFF.md has messages, states and failures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvtransfer/protocol/chunk_slab.h"
#include "kvtransfer/protocol/handoff_sink.h"
#include "kvtransfer/protocol/handoff_source.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/link_meter.h"
#include "kvtransfer/protocol/receive_pool.h"
#include "kvtransfer/protocol/tombstones.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "kvtransfer/protocol/wire.h"

namespace baton {

const MachineTable& ConnectionTable();

// Status of the rest of an attempt that a later attempt replaces.
inline absl::Status Superseded() { return absl::AbortedError("the request was dispatched anew"); }

class TransferCore {
 public:
  // The pool's memory and `link` outlive the core's last call. on_event is called inside the core's
  // calls and must not call back into the core.
  TransferCore(const TransferOptions& options, const TransferFacts& facts, const PoolView& pool,
               Link* link, std::function<void(TransferEvent)> on_event);
  // Called before a core is made. InvalidArgument: the pool has no pages, an option is out of
  // range, or they do not fit together; the error names the option.
  static absl::Status Validate(const TransferOptions& options, const TransferFacts& facts,
                               const PoolView& pool);

  void Handle(TransferCommand command, int64_t now_us);
  void Handle(LinkEvent event, int64_t now_us);
  // Runs timers, at a grain of kTickUs; cheap in between.
  void Tick(int64_t now_us);
  // Announces chunks: one of each source in turn, at most kPumpBytes. True: more chunks wait.
  // Chunks of relays' chains go first: other chunks are announced only when no chain has a chunk to
  // announce, and, while a chain has bytes under way, one at a time in total. So a chain waits for
  // at most one chunk, and other traffic still progresses.
  bool Pump(int64_t now_us);

  // Ends every handoff and refuses new ones. When busy() is false, all lent pages can be given
  // back.
  void ShutDown(int64_t now_us);
  // Closes all connections, so that operations still under way end.
  void CloseConnections(int64_t now_us);
  // Called last: emits PagesReturned with all pages of the receive pool.
  void GiveLentPagesBack();

  // True if a handoff is open or awaited, so that an event may come at any time.
  bool busy() const { return !sources_.empty() || !sinks_.empty() || !awaited_.empty(); }
  const TransferCounters& counters() const { return counters_; }
  std::vector<LinkReport> links() const;
  uint64_t links_version() const { return links_version_; }  // raised when links() changes
  const ReceivePool& stock() const { return receive_pool_; }
  // Pages of the receive pool bound to sinks. Together with the pages in the pool: all lent pages
  // that have not come out.
  int32_t bound_pages() const;
  // Operations and slots in use; zero if not busy.
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
    MachineState<ConnectionState> state;  // ready: HELLO is exchanged
    bool outgoing = false;
    std::string address;
    Incarnation peer = 0;  // outgoing: expected; incoming: named by HELLO
    int64_t opened_us = 0, heard_us = 0, pinged_us = 0;

    bool ready() const { return state == ConnectionState::kReady; }
  };
  enum class Loss {
    kBroken,  // handoffs continue over the next connection
    kGone     // the peer is given up: handoffs end
  };
  struct Source {
    HandoffSource machine;
    Incarnation peer;
    std::string address;
    ConnectionId connection = 0;                     // 0: none
    int64_t bytes_arrived = 0, bytes_under_way = 0;  // at the last measurement

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
  struct Receive {  // accepted by the sink; posted, or held until a slot is free
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

  // Messages. False: the message is not allowed on this connection.
  bool OnMessage(ConnectionId id, Connection& connection, const wire::Message& message,
                 int64_t now_us);
  void OnHello(ConnectionId id, Connection& connection, const wire::Hello& hello);
  bool OnHelloAck(ConnectionId id, Connection& connection, const wire::HelloAck& ack,
                  int64_t now_us);
  void OnOpen(ConnectionId id, const wire::Open& open, int64_t now_us);
  // Answers OPEN of a handoff that is open here: repeats the answer, or resumes over this
  // connection.
  void OnOpenAgain(ConnectionId id, SinkKey key, uint32_t resume_from, int64_t now_us);
  absl::Status CheckTicket(const Ticket& ticket) const;
  bool OnSourceMessage(ConnectionId id, const wire::Message& message, int64_t now_us);
  bool OnSinkMessage(ConnectionId id, const wire::Message& message, int64_t now_us);
  // Answers OPEN, COMMIT or CANCEL of a handoff that is not open: tells how it ended.
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
  // Adds the bytes that the source delivered and has under way since its last measurement.
  void Measure(Source& source, int64_t now_us);
  void OnPong(Incarnation peer, int64_t round_trip_us);
  int64_t UnderWay(Traffic traffic) const { return under_way_[static_cast<size_t>(traffic)]; }

  // Chunks.
  // False: no chunk of this kind can be announced now, or no slot is free.
  bool PumpTraffic(Traffic traffic, int64_t* bytes_left, int64_t now_us);
  bool AnnounceNext(SourceKey key, Source& source, int64_t now_us);
  void Refuse(AnnouncementId announcement, ChunkRefusal why);
  void Post(Receive receive);
  void PostHeld();
  // Refuses held chunks of a sink that ended or whose connection ended: they will not land.
  void RefuseHeld(SinkKey key, int64_t now_us);

  // Handoffs.
  Source* FindSource(const TicketId& id, SourceKey* key = nullptr);
  HandoffSink* FindSink(const wire::Handoff& handoff, ConnectionId connection,
                        SinkKey* key = nullptr);
  void EndSource(SourceKey key, absl::Status status, bool tell_peer, int64_t now_us);
  void AbortSink(SinkKey key, absl::Status status, HandoffSink::PeerNotice notice, int64_t now_us);
  void PromiseWaiting(int64_t now_us);
  // Sends and emits a machine's effects, and erases the machine if it has ended: no reference to it
  // survives the call.
  void ApplySource(SourceKey key, HandoffEffects effects, int64_t now_us);
  void ApplySink(SinkKey key, HandoffEffects effects, int64_t now_us);
  void Emit(TransferEvent event) { on_event_(std::move(event)); }
  // Ends every turn: promises pages if there is room, and reports a changed receive pool.
  void Settle(int64_t now_us);

  // Parts.
  struct OpenPart {
    SinkKey key;
    SinkKey main = 0;  // 0 until it has pages of the main handoff
  };
  // The main handoff of a part; 0: not open.
  SinkKey FindMain(const Ticket& part) const;
  // Not OK: its main handoff has ended, or belongs to another attempt.
  absl::Status CheckMain(const Ticket& part) const;
  bool HasLaterPart(const TicketId& main, Epoch epoch) const;
  // Starts a new sink: promises pages of its main handoff, or answers NO_ROOM until that is
  // promised.
  void BeginPart(SinkKey key, int64_t now_us);
  // Promises the waiting parts of a main handoff that is now promised.
  void BindParts(SinkKey main, int64_t now_us);
  void BindPart(SinkKey key, SinkKey main, int64_t now_us);
  // Cleans up after a part whose sink was removed from sinks_.
  void OnPartEnded(SinkKey key, const HandoffSink& part, int64_t now_us);
  // A main handoff and its parts fail together.
  void FailTogether(const Ticket& ticket, const absl::Status& status, int64_t now_us);
  // Aborts all parts of `main` up to this epoch.
  void AbortParts(const TicketId& main, Epoch epoch, const absl::Status& status, int64_t now_us);

  // Inflows.
  std::vector<AwaitInflow>::iterator FindAwaited(const TicketId& id);
  // Not OK: no OPEN for this inflow can be accepted any more.
  absl::Status CheckAwait(const AwaitInflow& await);
  // Not OK: the engine awaits a different ticket under this id.
  absl::Status CheckAwaited(const Ticket& ticket);
  // Reports inflows awaited under this id, up to this epoch, as failed.
  void FailAwaited(const TicketId& id, Epoch epoch, const absl::Status& status);
  // Ends open or awaited remains of attempts before this epoch.
  void EndEarlier(const TicketId& id, Epoch epoch, int64_t now_us);
  // Starts a new sink: promises the pages awaited for it, or answers NO_ROOM until they are
  // awaited.
  void BeginInflow(SinkKey key, int64_t now_us);

  const TransferOptions options_;
  const TransferFacts facts_;
  const PoolView pool_;
  Link* const link_;
  const std::function<void(TransferEvent)> on_event_;
  const HandoffLimits limits_;
  const wire::Identity identity_;
  ChunkSlab send_slab_, receive_slab_;

  std::map<ConnectionId, Connection> connections_;
  // In order of opening, so that loops over all handoffs run in the same order in every run.
  std::map<SourceKey, Source> sources_;
  std::map<SinkKey, HandoffSink> sinks_;
  absl::flat_hash_map<TicketId, SourceKey> source_of_;
  absl::flat_hash_map<TicketId, SinkKey> sink_of_;  // latest epoch; older ones only drain
  // By ticket of the main handoff, in order of OPEN. The main handoff may be closed or not open
  // yet.
  absl::flat_hash_map<TicketId, std::vector<OpenPart>> parts_of_;
  std::deque<SinkKey> waiting_;  // wait for room, first come first served
  Tombstones tombstones_;
  // Inflows without an OPEN so far, one per ticket id, in order of asking; nothing of this epoch or
  // a later one is open or has ended. No deadline: the engine bounds its prompt's wait and cancels.
  std::vector<AwaitInflow> awaited_;

  absl::flat_hash_map<OperationId, SendOperation> sends_;
  absl::flat_hash_map<OperationId, Receive> receives_;
  std::deque<Receive> held_;
  uint64_t next_id_ = 1;                           // next id of a source, sink or operation
  std::array<SourceKey, kTraffics> pump_after_{};  // last source that had its turn
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
