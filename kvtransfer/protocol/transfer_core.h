// All handoffs of one process over one link. Wires four objects, each with its own state:
// PeerConnections, Sources, Sinks, LinkStats. Sans-IO: commands, link events and the time go in;
// calls on Link and CellCopier and TransferEvents come out. The same object runs on the link thread
// (transfer.cc) and, over a MemLink and virtual time, in tests.
//
// Events of connections go to PeerConnections, whose effects go to Sources and Sinks; these call
// PeerConnections to connect, send and drop. When a connection breaks, its handoffs wait for the
// next one; when its peer stays silent or breaks the protocol, they end. now_us: microseconds of
// one monotonic clock. Owner: the link thread. docs/HANDOFF.md has messages, states and failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kvtransfer/protocol/link_stats.h"
#include "kvtransfer/protocol/peer_connections.h"
#include "kvtransfer/protocol/sinks.h"
#include "kvtransfer/protocol/sources.h"
#include "kvtransfer/protocol/transfer_setup.h"

namespace baton {

class TransferCore {
 public:
  // The pool's memory and `link` outlive the core's last call. on_event is called inside the core's
  // calls and must not call back into the core. copier: null if the pool is memory of this process
  // whose engine computes on return.
  TransferCore(const TransferOptions& options, const TransferFacts& facts, const PoolView& pool,
               Link* link, std::function<void(TransferEvent)> on_event,
               std::unique_ptr<CellCopier> copier = nullptr);
  TransferCore(const TransferCore&) = delete;
  // Called before a core is made. InvalidArgument: the pool has no pages, an option is out of
  // range, or they do not fit together; the error names the option.
  static absl::Status Validate(const TransferOptions& options, const TransferFacts& facts,
                               const PoolView& pool);

  void Handle(TransferCommand command, int64_t now_us);
  void Handle(LinkEvent event, int64_t now_us);
  // Handles the events of the copier. False: there were none.
  bool PollCopier(int64_t now_us);
  // Runs timers, at a grain of kTickUs; cheap in between.
  void Tick(int64_t now_us);
  // Begins chunks (Sources::Pump). True: more chunks wait.
  bool Pump(int64_t now_us);

  // Ends every handoff and refuses new ones. When busy() is false, all lent pages can be given
  // back.
  void ShutDown(int64_t now_us);
  // Closes all connections, so that operations still under way end.
  void CloseConnections(int64_t now_us);
  // Called last: emits PagesReturned with all pages of the receive pool.
  void GiveLentPagesBack();

  // True if a handoff is open or awaited, so that an event may come at any time.
  bool busy() const { return !sources_.empty() || !sinks_.empty(); }
  const TransferCounters& counters() const { return setup_.counters; }
  const LinkStats& links() const { return links_; }
  const ReceivePool& receive_pool() const { return sinks_.receive_pool(); }
  // Pages of the receive pool bound to promises. Together with the pages in the pool: all lent
  // pages that have not come out.
  int32_t bound_pages() const { return sinks_.bound_pages(); }
  // Operations and slots in use; zero if not busy.
  size_t n_operations() const { return sources_.n_operations() + sinks_.n_operations(); }

  static constexpr int64_t kTickUs = 10'000;

 private:
  // Gives a command, link event or effect to each object that has an On for its type.
  template <typename Variant>
  void Dispatch(Variant& event, int64_t now_us);
  void DispatchEffects(int64_t now_us);
  // Ends every turn: dispatches effects of connections, promises pages, emits events.
  void Settle(int64_t now_us);
  void EmitEvents();
  void EmitLinks(int64_t now_us);

  TransferSetup setup_;
  const std::function<void(TransferEvent)> on_event_;
  LinkStats links_;
  PeerConnections connections_{&setup_};
  Sources sources_{&setup_, &connections_, &links_};
  Sinks sinks_{&setup_, &connections_};
  int64_t ticked_us_ = 0, links_emitted_us_ = 0;
  std::vector<CopyEvent> copied_;
  uint64_t emitted_links_ = 0;  // version of the speeds that LinksMeasured told last
};

}  // namespace baton
