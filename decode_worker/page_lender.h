// Lends free pages of a worker's pool to the transfer room, so that an OPEN is answered at once and
// not after the engine's current step. Decides, once per engine turn, how many pages to lend and
// how many to ask back. A plain object of the engine thread; ReceivePool is the other end.
//
// Every page of the pool is free, held by a sequence (prefill or decode), or lent. Lent pages come
// back as the pages of an arrived handoff or in PagesReturned.
//
// Prompts of this worker and sequences of others take the same pages. Prompts come first, but while
// a sequence waits they take at most one pool's worth of pages; then none starts until a sequence
// got a promise. So neither starves: a sequence is overtaken by total() pages of prompts and by the
// sequences before it, a prompt by one sequence per total() pages of prompts.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "engine/kv/kv_pool.h"
#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

struct LenderNeeds {
  int taken_pages = 0;           // prompts here have started with so many since the last turn
  int wanted_pages = 0;          // a prompt here lacks so many free pages: lending pauses
  int growth_pages = 0;          // rows will take so many soon: kept back
  int sequence_pages = 0;        // pages of requests expected from other workers
  int64_t expected_wait_us = 0;  // a newcomer's wait for room
};

class PageLender {
 public:
  // eager (a worker whose role is to decode): lends all free pages that are not cached, and of the
  // cached ones what expected sequences and a reserve need; else only those that sequences waiting
  // for room need. pages_per_turn, 1 or more, bounds the pages zeroed between two steps. The pool
  // must outlive the lender.
  PageLender(KvPool* pool, bool eager, int pages_per_turn);

  // --- events
  void CountHeld(int n) { lent_ += n; }                  // lent by LendHeld, without this object
  void On(const HandoffArrived& event, absl::Time now);  // its pages were lent ones
  void On(const PagesReturned& event, absl::Time now);
  void On(const ReceivePoolChanged& event, absl::Time now);

  // Called once per turn; the command is for the transfer room.
  std::optional<TransferCommand> Balance(const LenderNeeds& needs);
  // True if another turn would lend more, so that the caller must not sleep.
  bool lends_more() const { return lends_more_; }
  // Asks everything back and lends nothing more.
  std::optional<TransferCommand> Close();

  // True if sequences were overtaken by prompts often enough, so that no prompt may start.
  bool sequences_first() const { return waiting_ > 0 && passed_pages_ >= pool_->total(); }
  int lent() const { return lent_; }
  int waiting() const { return waiting_; }        // tickets that wait for room
  int unpromised() const { return unpromised_; }  // lent pages not promised, as last reported
  // Lent pages that come back if they are missed, as last reported.
  int reclaimable() const { return unpromised_ + held_; }

 private:
  KvPool* const pool_;
  const bool eager_;
  const int pages_per_turn_;
  int lent_ = 0;
  int unpromised_ = 0, waiting_ = 0;
  int held_ = 0;  // pages of prompts that are here, whose sequences are not promised the rest
  uint64_t promises_ = 0;
  int64_t passed_pages_ = 0;  // prompts took so many since the last promise, while sequences waited
  bool reclaiming_ = false, lends_more_ = false, closed_ = false;
  int64_t reported_wait_us_ = 0;
};

}  // namespace baton
