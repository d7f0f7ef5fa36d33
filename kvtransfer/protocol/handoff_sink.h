// One handoff at the end that promised pages: decides about every announced chunk before a receive
// is posted, counts cells, and is complete only when every cell is verified and in place, DONE's
// digest agrees and COMMIT is here. Pages go back to the stock only when no posted receive can
// still write them. Sans-IO: events and the time in, effects out; owner: TransferCore, link thread.
//
// An inflow (a ticket with promise_pages 0) waits for the engine instead of the stock, has the
// pages the engine names bound from the start, and tells it how far planes are complete, plane
// after plane, page after page. With the last of them nothing can write those pages any more, so
// the engine hears nothing of what follows.
//
// A part (its ticket says of which handoff) has pages of that one, the main handoff, bound when it
// is promised. The main one lends them to it, from its promise on, and is complete only with all
// its parts; while a part is open on its pages it does not end.
//
// When its connection breaks it keeps what it has, and goes on over the next one its source opens:
// it acknowledges again what the source may not know of, and promises again, but only when no
// receive of the old connection can write any more.
//
// States, deadlines and transitions: HandoffSinkTable.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtransfer/protocol/cells.h"
#include "kvtransfer/protocol/handoff_effects.h"
#include "kvtransfer/protocol/link.h"
#include "kvtransfer/protocol/receive_pool.h"

namespace baton {

// The cells a chunk says it carries.
CellRect RectOf(const wire::ChunkHeader& header);

const MachineTable& HandoffSinkTable();

class HandoffSink {
 public:
  enum class State { kWaiting, kReceiving, kSuspended, kComplete, kAborting, kAborted };

  // source: the peer at the other end of `connection`.
  HandoffSink(const Ticket& ticket, Incarnation source, ConnectionId connection,
              const PoolView* pool, const HandoffLimits& limits, int64_t now_us);

  // --- events
  // expected_wait_us: for room in the stock. An inflow says 0: nobody knows when its turn comes.
  void NoRoom(int64_t expected_wait_us, HandoffEffects* out);
  // The stock has promise_pages free pages: takes them.
  void Promise(int64_t now_us, ReceivePool* stock, HandoffEffects* out);
  // A part's pages, (kv_pages), once: promises now, or over the next connection.
  void Await(std::vector<int32_t> pages, int64_t now_us, HandoffEffects* out);
  // The same of an inflow, which fits its ticket.
  void Await(AwaitInflow await, int64_t now_us, HandoffEffects* out);
  void OpenAgain(int64_t expected_wait_us, HandoffEffects* out);  // OPEN came twice: same answer

  void ConnectionLost(int64_t now_us);
  // OPEN of its source on a new connection, which knows of every chunk before resume_from.
  void Resume(ConnectionId connection, uint32_t resume_from, int64_t expected_wait_us,
              int64_t now_us, HandoffEffects* out);

  enum class Verdict {
    kAccept,
    kAlreadyHere,    // every cell is in place: refuse, acknowledge again
    kAlreadyComing,  // a receive for these very cells is posted: refuse
    kRefuse          // refuse with `reason`
  };
  struct Decision {
    Verdict verdict = Verdict::kAccept;
    wire::NackReason reason = wire::NackReason::kCrc;
  };
  // The header is well formed and from this handoff's connection. Changes nothing.
  Decision Check(const wire::ChunkHeader& header) const;
  // An accepted chunk's cells now belong to it, and their pages have ids; until Landed for it.
  void Claim(const wire::ChunkHeader& header, ReceivePool* stock);
  std::span<const int32_t> PageIds(const wire::ChunkHeader& header) const;

  enum class Landing { kVerified, kDamaged, kLost };
  // The receive is over: nothing writes the chunk's cells any more.
  void Landed(const wire::ChunkHeader& header, Landing landing, int64_t now_us, ReceivePool* stock,
              HandoffEffects* out);
  void Handle(const wire::Done& done, int64_t now_us, ReceivePool* stock, HandoffEffects* out);
  void Handle(const wire::Commit& commit, int64_t now_us, ReceivePool* stock, HandoffEffects* out);

  // --- a main handoff's parts
  // Not OK: it has no such part.
  absl::Status CheckPart(const Ticket& part) const;
  // It has, and is promised: the pages that the part may write until PartEnded. (part.kv_pages)
  std::vector<int32_t> BeginPart(const Ticket& part);
  void PartLanded(int64_t now_us);  // a chunk of it
  void PartEnded(const HandoffSink& part, int64_t now_us, ReceivePool* stock, HandoffEffects* out);

  enum class PeerNotice { kNothing, kCancel, kCancelled };  // the source, of the end
  void Abort(absl::Status status, PeerNotice notice, int64_t now_us, ReceivePool* stock,
             HandoffEffects* out);
  // Not OK: the present state is past its deadline, and the owner aborts the handoff with this.
  absl::Status Overdue(int64_t now_us) const;
  void Tick(int64_t now_us, HandoffEffects* out);

  const Ticket& ticket() const { return ticket_; }
  wire::Handoff handoff() const { return {ticket_.id, ticket_.epoch}; }
  bool inflow() const { return ticket_.is_inflow(); }
  bool part() const { return ticket_.is_part(); }
  bool promised() const { return promised_; }
  ConnectionId connection() const { return connection_; }
  Incarnation source() const { return source_; }
  State state() const { return state_; }
  bool waiting() const { return state_ == State::kWaiting; }
  bool suspended() const { return state_ == State::kSuspended; }
  // A chunk that lands counts.
  bool gathering() const { return state_ == State::kReceiving || state_ == State::kSuspended; }
  bool complete() const { return state_ == State::kComplete; }
  bool failed() const { return state_ == State::kAborting || state_ == State::kAborted; }
  bool ended() const { return state_ == State::kComplete || state_ == State::kAborted; }
  const absl::Status& status() const { return status_; }
  int32_t bound_pages() const { return n_bound_; }  // of the stock

 private:
  size_t CellIndex(int32_t page, int32_t plane) const;
  void SetAside(std::vector<int32_t> page_ids);
  void PromiseNamed(int64_t now_us, HandoffEffects* out);
  void Bind(int32_t page, ReceivePool* stock);
  void ReportCells(const CellRect& rect, HandoffEffects* out);
  void CompleteIfAll(int64_t now_us, ReceivePool* stock, HandoffEffects* out);
  // All of this handoff itself, but for its parts.
  bool all_own_here() const { return n_missing_ == 0 && done_ && commit_; }
  void ResumeIfQuiet(int64_t now_us, HandoffEffects* out);
  void FinishAbortIfQuiet(ReceivePool* stock, HandoffEffects* out);
  void ReportAborted(HandoffEffects* out) const;

  const Ticket ticket_;
  const Incarnation source_;
  const PoolView* const pool_;
  const HandoffLimits limits_;
  const int64_t opened_us_;
  MachineState<State> state_;
  int64_t since_us_;         // start of the present wait; Receiving: last sign of progress
  ConnectionId connection_;  // 0: none
  std::optional<uint32_t> resume_from_;  // Suspended: the source is back, the promise is due

  bool promised_ = false;          // pages are set aside
  std::vector<int32_t> page_ids_;  // (kv_pages), -1: not bound yet
  std::vector<bool> here_;         // (kv_pages, n_planes): the cell is verified and in place
  int32_t n_bound_ = 0;
  int64_t n_missing_ = 0;  // cells not here that it brings itself
  // Parts: pages that complete ones have not brought, those that may write now, the ranges of both.
  int32_t pages_of_parts_missing_ = 0, n_parts_open_ = 0;
  std::vector<CellRect> parts_;  // of pages
  // Inflows: cells of each plane not here; what the engine was told last, planes that are complete
  // and pages of the plane after them. What was there before it.
  std::vector<int32_t> missing_of_plane_;
  int32_t planes_before_ = 0, pages_before_ = 0;
  int32_t planes_reported_ = 0, pages_reported_ = 0;
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
