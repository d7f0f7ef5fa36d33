// All handoffs that this process receives, and the promises whose pages they fill: a HandoffSink
// and a PagePromise for each, the receive pool and who waits for room in it, the receives, and how
// handoffs and promises ended. Commands, effects of PeerConnections, the end of receives and of
// scatters and the time go in; calls on PeerConnections, Link and CellCopier come out, and
// TransferEvents.
// now_us: microseconds of one monotonic clock. Owner: TransferCore, link thread.
//
// Tickets of one promise may come from several sources, in any order; the first OPEN or the
// engine's AwaitInflow makes the promise, whichever comes first. If one of its handoffs fails, the
// promise and all its handoffs fail. Of one promise, only the latest epoch lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "kvtransfer/protocol/handoff_sink.h"
#include "kvtransfer/protocol/page_promise.h"
#include "kvtransfer/protocol/peer_connections.h"
#include "kvtransfer/protocol/receive_pool.h"
#include "kvtransfer/protocol/receives.h"
#include "kvtransfer/protocol/tombstones.h"

namespace baton {

class Sinks {
 public:
  static constexpr size_t kMaxOpenHandoffs = 65'536;

  Sinks(TransferSetup* setup, PeerConnections* connections);  // both outlive this object

  void On(LendPages& command, int64_t now_us);
  void On(LendHeld& command, int64_t now_us);
  void On(ReclaimPages& command, int64_t now_us);
  void On(ReclaimHeld& command, int64_t now_us);
  void On(AwaitInflow& command, int64_t now_us);
  void On(const CancelPromises& command, int64_t now_us);
  void On(const CancelHandoff& command, int64_t now_us);
  void On(const ConnectionOver& over, int64_t now_us);
  void On(const SourceMessage& from, int64_t now_us);
  void On(const ChunkOffered& chunk, int64_t now_us);
  void On(const ChunkLanded& event, int64_t now_us);
  void On(const CellsScattered& event, int64_t now_us);
  void Tick(int64_t now_us);
  // Ends every turn: promises pages if there is room, and reports a changed receive pool.
  void Settle(int64_t now_us);

  bool empty() const { return promises_.empty() && held_.empty(); }
  const ReceivePool& receive_pool() const { return receive_pool_; }
  int32_t bound_pages() const;  // pages of the receive pool, bound to promises
  size_t n_operations() const { return receives_.size(); }

 private:
  HandoffSink* Find(const wire::Handoff& handoff);  // nullptr: not open here

  void OnOpen(const SourceMessage& from, const wire::Open& open, int64_t now_us);
  // Answers OPEN of a handoff that is open here: repeats the answer, or resumes over this
  // connection.
  void OnOpenAgain(ConnectionId id, const wire::Handoff& handoff, uint32_t resume_from,
                   int64_t now_us);
  // Not OK: another attempt has replaced this one, or its promise has ended or is a different one.
  absl::Status CheckAttempt(const Ticket& ticket) const;
  void PromiseWaiting(int64_t now_us);
  // Tells the handoffs of a promise that its pages are there.
  void TellPromised(const PagePromise& promise, int64_t now_us);
  // Fails a promise and its handoffs; removes it if none of them is left.
  void FailPromise(wire::Handoff key, absl::Status status, int64_t now_us);
  void RemoveIfEnded(wire::Handoff key);
  void GiveBack(std::vector<int32_t> pages);
  // Fails the promise of this id, or of the ticket of this id: epochs up to this one.
  void EndUpTo(TicketId id, int64_t epoch, const absl::Status& status, int64_t now_us);
  // Follows a call on a machine: refuses held chunks that will not land, because the handoff or its
  // connection ended; sends the machine's effects; removes it if it has ended, and ends with it
  // what fails together with it: no reference to a machine survives the call.
  void Apply(wire::Handoff handoff, int64_t now_us);

  TransferSetup* const setup_;
  PeerConnections* const connections_;
  std::map<wire::Handoff, HandoffSink> sinks_;     // ordered, so that each run has the same order
  std::map<wire::Handoff, PagePromise> promises_;  // by id and epoch, while they may be needed
  std::map<wire::Handoff, std::vector<int32_t>> held_;  // lent for promises that no OPEN has made
  std::deque<wire::Handoff> waiting_;  // promises that wait for room, first come first served
  ReceivePool receive_pool_;
  Receives receives_;
  Tombstones ended_handoffs_, ended_promises_;
  int64_t expected_wait_us_ = 0;
  ReceivePoolChanged told_;
};

}  // namespace baton
