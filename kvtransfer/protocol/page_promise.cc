#include "kvtransfer/protocol/page_promise.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using State = PagePromise::State;

constexpr StateRow kStates[] = {
    {"waiting", "room_timeout", "fails with its handoffs, ResourceExhausted"},
    {"filling", "idle_timeout without a chunk, DONE or COMMIT of any handoff",
     "fails with its handoffs, DeadlineExceeded"},
    {"complete", "", ""},
    {"failing", "those of its handoffs", "their connections are closed"},
    {"failed", "", ""}};
constexpr TransitionRow kTransitions[] = {
    Move(State::kWaiting, State::kFilling), Move(State::kWaiting, State::kFailing),
    Move(State::kFilling, State::kComplete), Move(State::kFilling, State::kFailing),
    Move(State::kFailing, State::kFailed)};

CellRect RangeOf(const Ticket& ticket) {
  return {.n_planes = 1, .first_page = ticket.first_page, .n_pages = ticket.n_pages};
}

}  // namespace

const MachineTable& PagePromiseTable() {
  static const MachineTable table{"page promise", "Sinks, link thread", kStates, kTransitions};
  return table;
}

PagePromise::PagePromise(const Ticket& ticket, const PoolView* pool, const HandoffLimits& limits,
                         int64_t now_us)
    : ticket_(ticket),
      pool_(pool),
      limits_(limits),
      opened_us_(now_us),
      state_(PagePromiseTable(), limits.transitions),
      touched_us_(now_us) {}

// ---- handoffs ----

absl::Status PagePromise::Check(const Ticket& ticket) const {
  if (ticket.request_id != ticket_.request_id || ticket.kv_pages != ticket_.kv_pages ||
      ticket.promise_pages != ticket_.promise_pages)
    return absl::InvalidArgumentError(
        absl::StrCat("the ticket is for ", ticket.kv_pages, " of ", ticket.promise_pages,
                     " promised pages, the promise is of ", ticket_.kv_pages, " of ",
                     ticket_.promise_pages, ", for request ", absl::Hex(ticket_.request_id)));
  const CellRect range = RangeOf(ticket);
  const auto overlaps = [&range](const CellRect& other) { return Overlap(other, range); };
  if (std::none_of(ranges_.begin(), ranges_.end(), overlaps)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("another handoff fills some of the ",
                                                 ticket.n_pages, " pages from ", ticket.first_page,
                                                 " on"));
}

void PagePromise::Begin(const Ticket& ticket, int64_t now_us) {
  ranges_.push_back(RangeOf(ticket));
  open_.push_back({ticket.id, ticket.epoch});
  Touch(now_us);
}

void PagePromise::Committed(const Ticket& ticket, const CommitRecord& record, int64_t now_us,
                            ReceivePool* stock, std::vector<TransferEvent>* out) {
  std::erase(open_, wire::Handoff{ticket.id, ticket.epoch});
  Touch(now_us);
  if (ticket.is_last()) record_ = record;
  n_committed_ += ticket.n_pages;
  if (state_ == State::kFailing) return FinishIfQuiet(stock, out);
  if (n_committed_ < ticket_.kv_pages) return;
  BATON_CHECK(open_.empty());  // ranges are disjoint
  state_ = State::kComplete;
  if (ticket_.is_named()) return;
  std::vector<int32_t> pages = std::move(page_ids_);
  for (int32_t left = ticket_.promise_pages - std::exchange(n_bound_, 0); left > 0; --left)
    pages.push_back(stock->Bind());
  out->emplace_back(HandoffArrived{.ticket_id = ticket_.promise,
                                   .epoch = ticket_.epoch,
                                   .request_id = ticket_.request_id,
                                   .pages = std::move(pages),
                                   .record = record_,
                                   .transfer_us = now_us - opened_us_});
}

void PagePromise::Ended(const Ticket& ticket, ReceivePool* stock, std::vector<TransferEvent>* out) {
  std::erase(open_, wire::Handoff{ticket.id, ticket.epoch});
  FinishIfQuiet(stock, out);
}

// ---- pages ----

void PagePromise::SetAside(std::vector<int32_t> page_ids, int64_t now_us) {
  BATON_CHECK(page_ids.size() == static_cast<size_t>(ticket_.kv_pages));
  state_ = State::kFilling;
  page_ids_ = std::move(page_ids);
  here_.assign(page_ids_.size() * pool_->planes.size(), false);
  Touch(now_us);
}

void PagePromise::Take(int64_t now_us, ReceivePool* stock) {
  BATON_CHECK(state_ == State::kWaiting && !ticket_.is_named());
  stock->Promise(ticket_.promise_pages);
  SetAside(std::vector<int32_t>(static_cast<size_t>(ticket_.kv_pages), -1), now_us);
}

void PagePromise::Name(AwaitInflow await, int64_t now_us) {
  BATON_CHECK(state_ == State::kWaiting && ticket_.is_named());
  SetAside(std::move(await.pages), now_us);
  const auto n_planes = static_cast<int32_t>(pool_->planes.size());
  // At least one cell is missing.
  BATON_CHECK(await.n_planes < n_planes && await.n_pages < ticket_.kv_pages);
  planes_before_ = planes_reported_ = await.n_planes;
  pages_before_ = pages_reported_ = await.n_pages;
  missing_of_plane_.assign(pool_->planes.size(), ticket_.kv_pages);
  for (int32_t plane = 0; plane <= planes_before_; ++plane) {
    const int32_t n_here = plane < planes_before_ ? ticket_.kv_pages : pages_before_;
    for (int32_t page = 0; page < n_here; ++page) here_[CellIndex(page, plane)] = true;
    missing_of_plane_[plane] -= n_here;
  }
}

void PagePromise::Bind(const CellRect& rect, ReceivePool* stock) {
  for (int32_t page = rect.first_page; page < rect.first_page + rect.n_pages; ++page) {
    if (page_ids_[page] >= 0) continue;
    page_ids_[page] = stock->Bind();
    ++n_bound_;
  }
}

std::span<const int32_t> PagePromise::PageIds(int32_t first_page, int32_t n_pages) const {
  return std::span(page_ids_).subspan(static_cast<size_t>(first_page),
                                      static_cast<size_t>(n_pages));
}

int64_t PagePromise::CountHere(const CellRect& rect) const {
  int64_t n = 0;
  for (int32_t page = rect.first_page; page < rect.first_page + rect.n_pages; ++page)
    for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane)
      n += here_[CellIndex(page, plane)];
  return n;
}

void PagePromise::Landed(const CellRect& rect, int64_t now_us, std::vector<TransferEvent>* out) {
  Touch(now_us);
  for (int32_t page = rect.first_page; page < rect.first_page + rect.n_pages; ++page)
    for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane)
      here_[CellIndex(page, plane)] = true;
  if (!ticket_.is_named()) return;
  for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane)
    missing_of_plane_[plane] -= rect.n_pages;
  Report(out);
}

void PagePromise::Report(std::vector<TransferEvent>* out) {
  const auto n_planes = static_cast<int32_t>(missing_of_plane_.size());
  int32_t planes = planes_reported_, pages = pages_reported_;
  for (; planes < n_planes && missing_of_plane_[planes] == 0; ++planes) pages = 0;
  if (planes < n_planes)  // some of its pages are missing
    while (here_[CellIndex(pages, planes)]) ++pages;
  if (planes == planes_reported_ && pages == pages_reported_) return;
  planes_reported_ = planes;
  pages_reported_ = pages;
  out->emplace_back(InflowArrived{
      .ticket_id = ticket_.promise, .epoch = ticket_.epoch, .n_planes = planes, .n_pages = pages});
}

// ---- the end ----

void PagePromise::Fail(absl::Status status, ReceivePool* stock, std::vector<TransferEvent>* out) {
  if (failed() || ended()) return;
  status_ = std::move(status);
  if (has_pages() && !ticket_.is_named()) stock->Release(ticket_.promise_pages - n_bound_);
  state_ = State::kFailing;
  FinishIfQuiet(stock, out);
}

void PagePromise::FinishIfQuiet(ReceivePool* stock, std::vector<TransferEvent>* out) {
  if (state_ != State::kFailing || !open_.empty()) return;
  state_ = State::kFailed;
  const bool had_pages = !here_.empty();
  std::erase(page_ids_, -1);
  if (!ticket_.is_named()) {
    stock->Lend(std::exchange(page_ids_, {}));
    n_bound_ = 0;
    out->emplace_back(HandoffAborted{.ticket_id = ticket_.promise,
                                     .epoch = ticket_.epoch,
                                     .request_id = ticket_.request_id,
                                     .status = status_});
  } else if (had_pages && planes_reported_ < static_cast<int32_t>(pool_->planes.size())) {
    out->emplace_back(
        InflowFailed{.ticket_id = ticket_.promise, .epoch = ticket_.epoch, .status = status_});
  }
}

absl::Status PagePromise::Overdue(int64_t now_us) const {
  if (waiting() && now_us - opened_us_ >= limits_.room_timeout_us)
    return absl::ResourceExhaustedError(ticket_.is_named()
                                            ? "no pages were named for the inflow in time"
                                            : "there was no room in time");
  if (has_pages() && now_us - touched_us_ >= limits_.idle_timeout_us)
    return absl::DeadlineExceededError("the sources sent nothing in time");
  return absl::OkStatus();
}

size_t PagePromise::CellIndex(int32_t page, int32_t plane) const {
  return static_cast<size_t>(page) * pool_->planes.size() + static_cast<size_t>(plane);
}

}  // namespace baton
