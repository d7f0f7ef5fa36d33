// Pages set aside at a sink for the KV of one request: taken from the receive pool when the first
// of its handoffs opens, or named by the engine (tickets with promise_pages 0), before it opens or
// after. Any number of handoffs fill disjoint ranges of the kv_pages. The promise is complete when
// its ranges are all of the pages and all are committed; it fails when one of its handoffs fails,
// and gives its pages back only when no handoff can write them any more.
//
// Named pages are reported to the engine plane after plane, page after page. After the last page no
// write can follow, so the engine hears no more of the promise.
//
// States, deadlines and transitions: PagePromiseTable; docs/HANDOFF.md. Events and the time go in;
// TransferEvents and calls on the receive pool come out. now_us: microseconds of one monotonic
// clock. Owner: Sinks, link thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/state_machine.h"
#include "kvtransfer/protocol/cells.h"
#include "kvtransfer/protocol/receive_pool.h"
#include "kvtransfer/protocol/transfer_setup.h"

namespace baton {

const MachineTable& PagePromiseTable();

class PagePromise {
 public:
  enum class State { kWaiting, kFilling, kComplete, kFailing, kFailed };

  // ticket: of the first handoff that opens; of an inflow that the engine awaits, what it tells of
  // the tickets to come. `setup` and `receive_pool` must outlive the promise.
  PagePromise(const Ticket& ticket, TransferSetup* setup, ReceivePool* receive_pool,
              int64_t now_us);

  // --- handoffs
  // InvalidArgument: the ticket is of another promise, or another handoff fills some of its range.
  absl::Status Check(const Ticket& ticket) const;
  void Begin(const Ticket& ticket, int64_t now_us);  // precondition: Check is OK
  // The handoff writes no page any more: its range is verified and committed with this record, or
  // (nullopt) it has failed. The last range that is committed completes the promise.
  void Ended(const Ticket& ticket, const std::optional<CommitRecord>& record, int64_t now_us);
  const std::vector<wire::Handoff>& open() const { return open_; }  // in order of OPEN

  // --- pages
  // While it waits: these, perhaps none, are the first of its pages, and have their KV. Returns
  // those that there is no use for: these, or those of the call before.
  std::vector<int32_t> Hold(std::vector<int32_t> pages);
  // Pages that it needs from the receive pool.
  int32_t pages_to_take() const { return ticket_.promise_pages - n_held(); }
  // Takes them; the pool must have that many free pages.
  void Take(int64_t now_us);
  // InvalidArgument: the pages do not fit the ticket. CHECKs that they were not named before.
  absl::Status Name(AwaitInflow await, int64_t now_us);
  // Binds ids for the rectangle's pages and returns its cells, whose page_ids are valid until the
  // promise ends.
  Cells Bind(const CellRect& rect);
  int64_t CountHere(const CellRect& rect) const;  // cells that are verified and in place
  // The rectangle's cells are verified and in place.
  void Landed(const CellRect& rect, int64_t now_us);
  void Touch(int64_t now_us) { touched_us_ = now_us; }  // a sign of progress by a handoff

  // --- the end
  // Fails the promise, now or when its last handoff has ended.
  void Fail(absl::Status status);
  // Not OK: the current state is past its deadline; the owner fails the promise with this status.
  // An inflow that no source has opened has none: the engine bounds its prompt's wait and cancels.
  absl::Status Overdue(int64_t now_us) const;

  const Ticket& ticket() const { return ticket_; }  // of the first handoff, once one has opened
  State state() const { return state_; }
  bool waiting() const { return state_ == State::kWaiting; }
  bool has_pages() const { return state_ == State::kFilling; }
  bool failed() const { return state_ == State::kFailing || state_ == State::kFailed; }
  bool ended() const { return state_ == State::kComplete || state_ == State::kFailed; }
  const absl::Status& status() const { return status_; }  // of Fail; OK before
  int32_t bound_pages() const;                            // pages taken from the receive pool
  // True until Hold was called, if the sink is expected to have some of the pages.
  bool awaits_held() const { return ticket_.held_pages > 0 && !held_told_; }
  int32_t n_held() const { return static_cast<int32_t>(held_.size()); }
  // The first cell that was missing before the first handoff.
  const CellPlace& first_missing() const { return first_missing_; }

 private:
  int64_t IndexOf(const CellPlace& cell) const {  // in here_
    return int64_t{cell.plane} * ticket_.kv_pages + cell.page;
  }
  void SetAside(std::vector<int32_t> page_ids, int64_t now_us);
  void Report();
  void FinishIfQuiet();

  Ticket ticket_;
  TransferSetup* const setup_;
  ReceivePool* const receive_pool_;
  const int64_t opened_us_;
  MachineState<State> state_;
  int64_t touched_us_;  // last sign of progress by a handoff

  std::vector<int32_t> held_;  // the first of its pages, which have their KV
  bool held_told_ = false;
  std::vector<int32_t> page_ids_;    // (kv_pages), -1: not bound yet
  uint64_t after_ = 0;               // of the pages bound so far, or named (transfer_events.h)
  std::vector<bool> here_;           // (n_planes, kv_pages): the cell is verified and in place
  std::vector<CellRect> ranges_;     // of all its handoffs: rectangles of pages
  std::vector<wire::Handoff> open_;  // not ended
  int32_t n_committed_ = 0;          // pages
  CommitRecord record_;              // of the last range
  CellPlace first_missing_;
  size_t n_reported_ = 0;  // named pages: cells of here_, from the first one on
  absl::Status status_;
};

}  // namespace baton
