// One handoff at the receiving end: fills its range of a PagePromise. Decides about every announced
// chunk before a receive is posted, counts cells, and is complete only when every cell of the range
// is verified and in place, DONE's digest agrees and COMMIT has arrived. Ends only when no posted
// receive can still write its pages. Sans-IO: events and the time in, effects out; owner: Sinks,
// link thread.
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
#include <span>
#include <vector>

#include "kvtransfer/protocol/handoff_effects.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/page_promise.h"
#include "kvtransfer/protocol/receive_pool.h"

namespace baton {

// The cells that a chunk's header names.
CellRect RectOf(const wire::ChunkHeader& header);

const MachineTable& HandoffSinkTable();

class HandoffSink {
 public:
  enum class State { kWaiting, kReceiving, kSuspended, kComplete, kAborting, kAborted };

  // source: the peer at the other end of `connection`. `promise` has begun this handoff and, like
  // `pool`, outlives the sink. The ticket is verified. Effects are appended to *out, here and
  // below.
  HandoffSink(const Ticket& ticket, Incarnation source, ConnectionId connection,
              PagePromise* promise, const PoolView* pool, const HandoffLimits& limits,
              int64_t now_us);

  // --- events
  // expected_wait_us: expected wait for room in the receive pool; told as 0 (unknown) if the engine
  // names the pages.
  void NoRoom(int64_t expected_wait_us, HandoffEffects* out);
  // The promise has its pages: promises now, or over the next connection.
  void Promised(int64_t now_us, HandoffEffects* out);
  void OpenAgain(int64_t expected_wait_us, HandoffEffects* out);  // repeated OPEN: same answer

  void ConnectionLost(int64_t now_us);
  // The source sent OPEN on a new connection; it has acknowledgements of all chunks before
  // resume_from.
  void Resume(ConnectionId connection, uint32_t resume_from, int64_t expected_wait_us,
              int64_t now_us, HandoffEffects* out);

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
  // Reserves an accepted chunk's cells until Landed, and binds ids for their pages.
  void Claim(const wire::ChunkHeader& header, ReceivePool* stock);
  // Ids of a claimed chunk's pages, (header.n_pages); valid until the chunk has landed.
  std::span<const int32_t> PageIds(const wire::ChunkHeader& header) const;

  enum class Landing { kVerified, kDamaged, kLost };
  // Ends an accepted chunk: the receive is over and nothing writes its cells any more.
  void Landed(const wire::ChunkHeader& header, Landing landing, int64_t now_us,
              HandoffEffects* out);
  void Handle(const wire::Done& done, int64_t now_us, HandoffEffects* out);
  void Handle(const wire::Commit& commit, int64_t now_us, HandoffEffects* out);

  enum class PeerNotice { kNothing, kCancel, kCancelled };  // message to the source about the end
  // Ends the handoff with `status`, not OK; at once, or when no posted receive can still write its
  // pages. A handoff that has ended stays as it is; one that aborts already keeps its first status,
  // and sends CANCELLED if the notice asks for it.
  void Abort(absl::Status status, PeerNotice notice, int64_t now_us, HandoffEffects* out);
  // Not OK: the current state is past its deadline; the owner aborts the handoff with this status.
  // ResourceExhausted: no promise in time; DeadlineExceeded: a silent source; Unavailable: no
  // connection in time.
  absl::Status Overdue(int64_t now_us) const;
  // Called now and then: asks to close the connection of an aborted handoff whose receives do not
  // end.
  void Tick(int64_t now_us, HandoffEffects* out);

  const Ticket& ticket() const { return ticket_; }
  wire::Handoff handoff() const { return {ticket_.id, ticket_.epoch}; }
  bool promised() const { return promised_; }
  ConnectionId connection() const { return connection_; }
  Incarnation source() const { return source_; }
  State state() const { return state_; }
  bool waiting() const { return state_ == State::kWaiting; }
  bool suspended() const { return state_ == State::kSuspended; }
  // True while landed chunks count.
  bool gathering() const { return state_ == State::kReceiving || state_ == State::kSuspended; }
  bool complete() const { return state_ == State::kComplete; }
  bool failed() const { return state_ == State::kAborting || state_ == State::kAborted; }
  bool ended() const { return state_ == State::kComplete || state_ == State::kAborted; }
  const absl::Status& status() const { return status_; }  // of Abort; OK before
  CommitRecord record() const { return {commit_->first_token, commit_->n_tokens}; }  // if complete

 private:
  void CompleteIfAll(int64_t now_us, HandoffEffects* out);
  void ResumeIfQuiet(int64_t now_us, HandoffEffects* out);
  void FinishAbortIfQuiet(HandoffEffects* out);

  const Ticket ticket_;
  const Incarnation source_;
  PagePromise* const promise_;
  const PoolView* const pool_;
  const HandoffLimits limits_;
  const int64_t opened_us_;
  MachineState<State> state_;
  int64_t since_us_;                     // start of the current wait
  ConnectionId connection_;              // 0: none
  std::optional<uint32_t> resume_from_;  // kSuspended: the source is back, a promise is due

  bool promised_ = false;         // the promise has its pages
  int64_t n_missing_ = 0;         // cells of the range
  std::vector<CellRect> claims_;  // accepted and not landed: a window's worth at most
  int64_t claimed_bytes_ = 0;
  std::vector<uint32_t> landed_;  // numbers of the chunks in place
  uint64_t digest_ = 0;

  std::optional<wire::Done> done_;
  std::optional<wire::Commit> commit_;
  absl::Status status_;
  bool answer_cancel_ = false;
};

}  // namespace baton
