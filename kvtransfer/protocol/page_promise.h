// Pages set aside at a sink for the KV of one request: taken from the receive pool when the first
// of its handoffs opens, or named by the engine (tickets with promise_pages 0). Any number of
// handoffs fill disjoint ranges of the kv_pages. The promise is complete when its ranges are all of
// the pages and all are committed; it fails when one of its handoffs fails, and gives its pages
// back only when no handoff can write them any more.
//
// Named pages are reported to the engine plane after plane, page after page. After the last page no
// write can follow, so the engine hears no more of the promise.
//
// States, deadlines and transitions: PagePromiseTable; docs/HANDOFF.md. Events and the time go in;
// TransferEvents are appended to *out. now_us: microseconds of one monotonic clock. Owner: Sinks,
// link thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvtransfer/protocol/cells.h"
#include "kvtransfer/protocol/handoff_effects.h"
#include "kvtransfer/protocol/receive_pool.h"

namespace baton {

const MachineTable& PagePromiseTable();

class PagePromise {
 public:
  enum class State { kWaiting, kFilling, kComplete, kFailing, kFailed };

  // ticket: of the first handoff that opens. `pool` must outlive the promise.
  PagePromise(const Ticket& ticket, const PoolView* pool, const HandoffLimits& limits,
              int64_t now_us);

  // --- handoffs
  // InvalidArgument: the ticket is of another promise, or another handoff fills some of its range.
  absl::Status Check(const Ticket& ticket) const;
  void Begin(const Ticket& ticket, int64_t now_us);  // precondition: Check is OK
  // The handoff's range is verified and committed. The last one completes the promise.
  void Committed(const Ticket& ticket, const CommitRecord& record, int64_t now_us,
                 ReceivePool* stock, std::vector<TransferEvent>* out);
  // The handoff has failed, and writes no page any more.
  void Ended(const Ticket& ticket, ReceivePool* stock, std::vector<TransferEvent>* out);
  const std::vector<wire::Handoff>& open() const { return open_; }  // in order of OPEN

  // --- pages
  // Takes promise_pages from `stock`, which must have that many free pages.
  void Take(int64_t now_us, ReceivePool* stock);
  void Name(AwaitInflow await, int64_t now_us);  // `await` fits the tickets
  // Binds ids for the rectangle's pages.
  void Bind(const CellRect& rect, ReceivePool* stock);
  // (n_pages), -1: not bound. Valid until the promise ends.
  std::span<const int32_t> PageIds(int32_t first_page, int32_t n_pages) const;
  int64_t CountHere(const CellRect& rect) const;  // cells that are verified and in place
  // The rectangle's cells are verified and in place.
  void Landed(const CellRect& rect, int64_t now_us, std::vector<TransferEvent>* out);
  void Touch(int64_t now_us) { touched_us_ = now_us; }  // a sign of progress by a handoff

  // --- the end
  // Fails the promise, now or when its last handoff has ended.
  void Fail(absl::Status status, ReceivePool* stock, std::vector<TransferEvent>* out);
  // Not OK: the current state is past its deadline; the owner fails the promise with this status.
  absl::Status Overdue(int64_t now_us) const;

  const Ticket& ticket() const { return ticket_; }  // of the first handoff
  State state() const { return state_; }
  bool waiting() const { return state_ == State::kWaiting; }
  bool has_pages() const { return state_ == State::kFilling; }
  bool failed() const { return state_ == State::kFailing || state_ == State::kFailed; }
  bool ended() const { return state_ == State::kComplete || state_ == State::kFailed; }
  const absl::Status& status() const { return status_; }  // of Fail; OK before
  int32_t bound_pages() const { return n_bound_; }        // pages taken from the receive pool
  int64_t touched_us() const { return touched_us_; }
  // Cells in place before the first handoff: complete planes, and pages of the next plane.
  int32_t planes_before() const { return planes_before_; }
  int32_t pages_before() const { return pages_before_; }

 private:
  size_t CellIndex(int32_t page, int32_t plane) const;
  void SetAside(std::vector<int32_t> page_ids, int64_t now_us);
  void Report(std::vector<TransferEvent>* out);
  void FinishIfQuiet(ReceivePool* stock, std::vector<TransferEvent>* out);

  const Ticket ticket_;
  const PoolView* const pool_;
  const HandoffLimits limits_;
  const int64_t opened_us_;
  MachineState<State> state_;
  int64_t touched_us_;  // last sign of progress by a handoff

  std::vector<int32_t> page_ids_;  // (kv_pages), -1: not bound yet
  std::vector<bool> here_;         // (kv_pages, n_planes): the cell is verified and in place
  int32_t n_bound_ = 0;
  std::vector<CellRect> ranges_;     // of all its handoffs: rectangles of pages
  std::vector<wire::Handoff> open_;  // not ended
  int32_t n_committed_ = 0;          // pages
  CommitRecord record_;              // of the last range
  // Named pages: missing cells per plane, and cells last reported, in the form of planes_before_.
  std::vector<int32_t> missing_of_plane_;
  int32_t planes_before_ = 0, pages_before_ = 0;
  int32_t planes_reported_ = 0, pages_reported_ = 0;
  absl::Status status_;
};

}  // namespace baton
