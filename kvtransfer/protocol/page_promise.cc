#include "kvtransfer/protocol/page_promise.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using State = PagePromise::State;

constexpr StateRow kStates[] = {
    {"waiting", "room_timeout", "fails with its handoffs, ResourceExhausted"},
    {"filling", "idle_timeout without a chunk, DONE or COMMIT, once a handoff has opened",
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

PagePromise::PagePromise(const Ticket& ticket, TransferSetup* setup, ReceivePool* receive_pool,
                         int64_t now_us)
    : ticket_(ticket),
      setup_(setup),
      receive_pool_(receive_pool),
      opened_us_(now_us),
      state_(PagePromiseTable(), setup->options.transitions),
      touched_us_(now_us) {}

// ---- handoffs ----

absl::Status PagePromise::Check(const Ticket& ticket) const {
  if (!ranges_.empty() && ticket.kv_pages == 0)
    return absl::InvalidArgumentError("another handoff fills this promise of no page");
  if ((!ranges_.empty() && ticket.request_id != ticket_.request_id) ||
      ticket.kv_pages != ticket_.kv_pages || ticket.promise_pages != ticket_.promise_pages)
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
  if (ranges_.empty()) ticket_ = ticket;
  ranges_.push_back(RangeOf(ticket));
  open_.push_back({ticket.id, ticket.epoch});
  Touch(now_us);
}

void PagePromise::Ended(const Ticket& ticket, const std::optional<CommitRecord>& record,
                        int64_t now_us) {
  std::erase(open_, wire::Handoff{ticket.id, ticket.epoch});
  if (record) {
    Touch(now_us);
    if (ticket.is_last()) record_ = *record;
    n_committed_ += ticket.n_pages;
  }
  if (state_ == State::kFailing) return FinishIfQuiet();
  if (!record || n_committed_ < ticket_.kv_pages) return;
  BATON_CHECK(open_.empty());  // ranges are disjoint
  state_ = State::kComplete;
  if (ticket_.is_named()) return;
  std::vector<int32_t> pages = std::exchange(page_ids_, {});  // each has KV, so it is bound
  while (pages.size() < static_cast<size_t>(ticket_.promise_pages))
    pages.push_back(receive_pool_->Bind(&after_));
  setup_->events.emplace_back(HandoffArrived{.ticket_id = ticket_.promise,
                                             .epoch = ticket_.epoch,
                                             .request_id = ticket_.request_id,
                                             .pages = std::move(pages),
                                             .record = record_,
                                             .transfer_us = now_us - opened_us_});
}

// ---- pages ----

void PagePromise::SetAside(std::vector<int32_t> page_ids, int64_t now_us) {
  state_ = State::kFilling;
  page_ids_ = std::move(page_ids);
  here_.assign(page_ids_.size() * setup_->pool.planes.size(), false);
  Touch(now_us);
}

std::vector<int32_t> PagePromise::Hold(std::vector<int32_t> pages) {
  const bool fits = std::ssize(pages) <= ticket_.kv_pages;
  held_told_ = true;
  if (state_ != State::kWaiting || ticket_.is_named() || !fits) return pages;
  return std::exchange(held_, std::move(pages));
}

void PagePromise::Take(int64_t now_us) {
  BATON_CHECK(state_ == State::kWaiting && !ticket_.is_named());
  receive_pool_->Promise(pages_to_take());
  std::vector<int32_t> ids = held_;
  ids.resize(static_cast<size_t>(ticket_.kv_pages), -1);
  SetAside(std::move(ids), now_us);
  for (size_t plane = 0; plane < setup_->pool.planes.size(); ++plane)
    std::fill_n(here_.begin() + IndexOf({static_cast<int32_t>(plane), 0}), n_held(), true);
}

absl::Status PagePromise::Name(AwaitInflow await, int64_t now_us) {
  if (!ticket_.is_named() || static_cast<size_t>(ticket_.kv_pages) != await.pages.size())
    return absl::InvalidArgumentError(absl::StrCat(
        "the ticket is for ", ticket_.kv_pages, " KV pages and a promise of ",
        ticket_.promise_pages, ", the worker awaits an inflow of ", await.pages.size()));
  BATON_CHECK(state_ == State::kWaiting);
  SetAside(std::move(await.pages), now_us);
  after_ = await.after;
  first_missing_ = {await.n_planes, await.n_pages};
  n_reported_ = static_cast<size_t>(IndexOf(first_missing_));
  BATON_CHECK(await.n_pages < ticket_.kv_pages && n_reported_ < here_.size());  // a cell is missing
  std::fill_n(here_.begin(), n_reported_, true);
  return absl::OkStatus();
}

Cells PagePromise::Bind(const CellRect& rect) {
  const auto ids = std::span(page_ids_).subspan(static_cast<size_t>(rect.first_page),
                                                static_cast<size_t>(rect.n_pages));
  for (int32_t& id : ids)
    if (id < 0) id = receive_pool_->Bind(&after_);
  return {rect, ids, after_};
}

int32_t PagePromise::bound_pages() const {
  if (ticket_.is_named()) return 0;
  const auto is_bound = [](int32_t id) { return id >= 0; };
  const auto n = static_cast<int32_t>(std::ranges::count_if(page_ids_, is_bound));
  return std::max(0, n - n_held());  // while it waits, no page has an id
}

int64_t PagePromise::CountHere(const CellRect& rect) const {
  int64_t n = 0;
  for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane) {
    const auto first = here_.begin() + IndexOf({plane, rect.first_page});
    n += std::count(first, first + rect.n_pages, true);
  }
  return n;
}

void PagePromise::Landed(const CellRect& rect, int64_t now_us) {
  Touch(now_us);
  for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane)
    std::fill_n(here_.begin() + IndexOf({plane, rect.first_page}), rect.n_pages, true);
  if (ticket_.is_named()) Report();
}

void PagePromise::Report() {
  size_t n = n_reported_;
  while (n < here_.size() && here_[n]) ++n;
  if (n == std::exchange(n_reported_, n)) return;
  const auto n_pages = static_cast<size_t>(ticket_.kv_pages);
  setup_->events.emplace_back(InflowArrived{.ticket_id = ticket_.promise,
                                            .epoch = ticket_.epoch,
                                            .n_planes = static_cast<int32_t>(n / n_pages),
                                            .n_pages = static_cast<int32_t>(n % n_pages)});
}

// ---- the end ----

void PagePromise::Fail(absl::Status status) {
  if (failed() || ended()) return;
  status_ = std::move(status);
  if (has_pages() && !ticket_.is_named()) receive_pool_->Release(pages_to_take() - bound_pages());
  state_ = State::kFailing;
  FinishIfQuiet();
}

void PagePromise::FinishIfQuiet() {
  if (state_ != State::kFailing || !open_.empty()) return;
  state_ = State::kFailed;
  if (!ticket_.is_named()) {
    // Pages that others may hold too are not lent for other KV.
    if (!page_ids_.empty()) page_ids_.erase(page_ids_.begin(), page_ids_.begin() + n_held());
    if (!held_.empty()) setup_->events.emplace_back(PagesReturned{std::exchange(held_, {})});
    std::erase(page_ids_, -1);
    receive_pool_->Lend(std::exchange(page_ids_, {}), after_);
    setup_->events.emplace_back(HandoffAborted{.ticket_id = ticket_.promise,
                                               .epoch = ticket_.epoch,
                                               .request_id = ticket_.request_id,
                                               .status = status_});
  } else if (n_reported_ < here_.size()) {  // pages were named, and the engine waits for them
    setup_->events.emplace_back(
        InflowFailed{.ticket_id = ticket_.promise, .epoch = ticket_.epoch, .status = status_});
  }
}

absl::Status PagePromise::Overdue(int64_t now_us) const {
  if (waiting() && now_us - opened_us_ >= setup_->options.room_timeout_ms * 1000)
    return absl::ResourceExhaustedError(ticket_.is_named()
                                            ? "no pages were named for the inflow in time"
                                            : "there was no room in time");
  if (has_pages() && !ranges_.empty() &&
      now_us - touched_us_ >= setup_->options.idle_timeout_ms * 1000)
    return absl::DeadlineExceededError("the sources sent nothing in time");
  return absl::OkStatus();
}

}  // namespace baton
