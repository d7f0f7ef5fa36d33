// One handoff at the end that promised pages: decides about every announced chunk before a receive
// is posted, counts cells, and is complete only when every cell is verified and in place, DONE's
// digest agrees and COMMIT is here. Pages go back to the stock only when no posted receive can
// still write them. Sans-IO: events and the time in, effects out; owner: TransferCore, link thread.
//
//   Waiting -> Receiving -> complete          either -> Aborting -> aborted
//
// state      deadline                                     on the deadline
// Waiting    none of its own: PING watches the source;
//            room, CANCEL or the owner ends it            -
// Receiving  none of its own: the source may compute for
//            long; PING watches it                        -
// Aborting   kDrainTimeoutUs while receives are posted    connection closed
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvtransfer/cells.h"
#include "kvtransfer/handoff_effects.h"
#include "kvtransfer/link.h"
#include "kvtransfer/page_stock.h"

namespace baton {

// The cells a chunk says it carries.
CellRect RectOf(const wire::ChunkHeader& header);

class HandoffSink {
 public:
  HandoffSink(const Ticket& ticket, ConnectionId connection, const PoolView* pool,
              const HandoffLimits& limits, int64_t now_us);

  // --- events
  void NoRoom(int64_t expected_wait_us, HandoffEffects* out);
  // The stock has promise_pages free pages: takes them.
  void Promise(PageStock* stock, HandoffEffects* out);
  void OpenAgain(int64_t expected_wait_us, HandoffEffects* out);  // OPEN came twice: same answer

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
  void Claim(const wire::ChunkHeader& header, PageStock* stock);
  std::span<const int32_t> PageIds(const wire::ChunkHeader& header) const;

  enum class Landing { kVerified, kDamaged, kLost };
  // The receive is over: nothing writes the chunk's cells any more.
  void Landed(const wire::ChunkHeader& header, Landing landing, int64_t now_us, PageStock* stock,
              HandoffEffects* out);
  void Handle(const wire::Done& done, int64_t now_us, PageStock* stock, HandoffEffects* out);
  void Handle(const wire::Commit& commit, int64_t now_us, PageStock* stock, HandoffEffects* out);

  enum class Tell { kNothing, kCancel, kCancelled };  // the source, of the end
  void Abort(absl::Status status, Tell tell, int64_t now_us, PageStock* stock, HandoffEffects* out);
  void Tick(int64_t now_us, HandoffEffects* out);

  const Ticket& ticket() const { return ticket_; }
  wire::Handoff handoff() const { return {ticket_.id, ticket_.epoch}; }
  ConnectionId connection() const { return connection_; }
  bool waiting() const { return state_ == State::kWaiting; }
  bool receiving() const { return state_ == State::kReceiving; }
  bool complete() const { return state_ == State::kComplete; }  // HandoffArrived is out
  bool ended() const { return state_ == State::kComplete || state_ == State::kAborted; }
  const absl::Status& status() const { return status_; }
  int32_t bound_pages() const { return n_bound_; }

 private:
  enum class State { kWaiting, kReceiving, kComplete, kAborting, kAborted };

  size_t IndexOf(const CellRect& rect, int32_t page, int32_t plane) const;
  void CompleteIfAll(int64_t now_us, PageStock* stock, HandoffEffects* out);
  void FinishAbortIfQuiet(PageStock* stock, HandoffEffects* out);

  const Ticket ticket_;
  const ConnectionId connection_;
  const PoolView* const pool_;
  const HandoffLimits limits_;
  const int64_t opened_us_;
  State state_ = State::kWaiting;

  std::vector<int32_t> page_ids_;  // (kv_pages), -1: not bound yet
  std::vector<bool> here_;         // (kv_pages, n_planes): the cell is verified and in place
  int32_t n_bound_ = 0;
  int64_t n_missing_ = 0;         // cells not here
  std::vector<CellRect> claims_;  // accepted and not landed: a window's worth at most
  int64_t claimed_bytes_ = 0;
  uint64_t digest_ = 0;

  std::optional<wire::Done> done_;
  std::optional<wire::Commit> commit_;
  absl::Status status_;
  int64_t aborting_us_ = 0;
  bool answer_cancel_ = false;
};

}  // namespace baton
