// One handoff at the receiving end: fills its range of a PagePromise. Decides about every announced
// chunk before a receive is posted, counts cells, and is complete only when every cell of the range
// is verified and in place, DONE's digest agrees and COMMIT has arrived. Ends only when no posted
// receive can still write its pages. Sans-IO: events and the time in, effects and calls on the
// promise out, which emits the TransferEvents; owner: Sinks, link thread.
//
// When the connection breaks, the sink keeps all received cells and continues over the next
// connection that its source opens: it repeats acknowledgements that may have been lost, and
// promises again, but only when no receive of the old connection can write any more.
//
// States, deadlines and transitions: HandoffSinkTable; docs/HANDOFF.md. Times are microseconds of
// the owner's monotonic clock.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/handoff_effects.h"
#include "kvtransfer/protocol/page_promise.h"

namespace baton {

// The cells that a chunk's header names.
CellRect RectOf(const wire::ChunkHeader& header);

const MachineTable& HandoffSinkTable();

class HandoffSink {
 public:
  enum class State { kWaiting, kReceiving, kSuspended, kComplete, kAborting, kAborted };

  // source: the peer at the other end of `connection`. `promise` has begun this handoff and, like
  // `setup`, outlives the sink. The ticket is verified.
  HandoffSink(const Ticket& ticket, Incarnation source, ConnectionId connection,
              PagePromise* promise, TransferSetup* setup, int64_t now_us);

  // --- events
  // Answers OPEN, whenever it comes: promises, or tells that there is no room. expected_wait_us:
  // expected wait for room in the receive pool, 0: it does not wait for room; told as 0 if the
  // engine names the pages.
  void Answer(int64_t expected_wait_us);
  // The promise has its pages: promises now, or over the next connection.
  void Promised();

  void ConnectionLost(int64_t now_us);
  // The source sent OPEN on a new connection; it has acknowledgements of all chunks before
  // resume_from.
  void Resume(ConnectionId connection, uint32_t resume_from, int64_t expected_wait_us,
              int64_t now_us);
  // Handles DONE, COMMIT and CANCEL of the source over the current connection; others are ignored.
  void Handle(const wire::Message& message, int64_t now_us);

  enum class Verdict {
    kAccept,
    kAlreadyHere,    // every cell is in place: refuse, acknowledge again
    kAlreadyComing,  // a receive for the same cells is posted: refuse
    kRefuse          // refuse with `reason`
  };
  struct Decision {
    Verdict verdict = Verdict::kAccept;
    wire::NackReason reason = wire::NackReason::kCrc;
  };
  // Decides about a chunk. Precondition: the header is well formed and came over this handoff's
  // connection. Changes nothing.
  Decision Check(const wire::ChunkHeader& header) const;
  // Reserves an accepted chunk's cells until Landed, and binds ids for their pages. Returns the
  // cells, whose page_ids are valid until the chunk has landed.
  Cells Claim(const wire::ChunkHeader& header);

  // Ends an accepted chunk: it is in place, or not verified because it is lost or damaged; nothing
  // writes its cells any more.
  void Landed(const wire::ChunkHeader& header, bool verified, int64_t now_us);

  // Ends the handoff with `status`, not OK; at once, or when no posted receive can still write its
  // pages. CANCEL goes out unless the source has sent one. A handoff that has ended or aborts
  // already stays as it is.
  void Abort(absl::Status status, int64_t now_us);
  // Called now and then: aborts a handoff whose source does not return in time (Unavailable), and
  // asks to close the connection of an aborted one whose receives do not end. Waits for room and
  // for chunks end with the promise's.
  void Tick(int64_t now_us);
  // Effects since the last call, in order.
  HandoffEffects TakeEffects() { return std::exchange(effects_, {}); }

  const Ticket& ticket() const { return ticket_; }
  wire::Handoff handoff() const { return {ticket_.id, ticket_.epoch}; }
  ConnectionId connection() const { return connection_; }
  Incarnation source() const { return source_; }
  State state() const { return state_; }
  // True while landed chunks count.
  bool gathering() const { return state_ == State::kReceiving || state_ == State::kSuspended; }
  bool failed() const { return state_ == State::kAborting || state_ == State::kAborted; }
  bool ended() const { return state_ == State::kComplete || state_ == State::kAborted; }
  const absl::Status& status() const { return status_; }  // of Abort; OK before

 private:
  void CompleteIfAll(int64_t now_us);
  void ResumeIfQuiet(int64_t now_us);
  void FinishAbortIfQuiet(int64_t now_us);

  const Ticket ticket_;
  const Incarnation source_;
  PagePromise* const promise_;
  TransferSetup* const setup_;
  MachineState<State> state_;
  int64_t since_us_;                     // kSuspended, kAborting: their start
  ConnectionId connection_;              // 0: none
  std::optional<uint32_t> resume_from_;  // kSuspended: the source is back, a promise is due

  int64_t n_missing_ = 0;         // cells of the range, once the promise has its pages
  std::vector<CellRect> claims_;  // accepted and not landed: a window's worth at most
  std::vector<uint32_t> landed_;  // numbers of the chunks in place
  uint64_t digest_ = 0;

  std::optional<wire::Done> done_;
  std::optional<wire::Commit> commit_;
  absl::Status status_;
  bool answer_cancel_ = false;  // CANCELLED is due when quiet
  HandoffEffects effects_;
};

}  // namespace baton
