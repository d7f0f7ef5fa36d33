#include "kvtransfer/protocol/handoff_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using State = HandoffSink::State;

constexpr StateRow kStates[] = {
    {"waiting", "room_timeout", "CANCEL, aborts, ResourceExhausted"},
    {"receiving", "idle_timeout without a chunk, DONE or COMMIT, or a part's chunk",
     "CANCEL, aborts, DeadlineExceeded"},
    {"suspended", "reconnect_timeout", "aborts, Unavailable"},
    {"complete", "", ""},
    {"aborting", "kDrainTimeoutUs while receives are posted; its parts' end",
     "the connection is closed"},
    {"aborted", "", ""}};
constexpr TransitionRow kTransitions[] = {
    Move(State::kWaiting, State::kReceiving),  Move(State::kWaiting, State::kSuspended),
    Move(State::kWaiting, State::kAborting),   Move(State::kReceiving, State::kSuspended),
    Move(State::kReceiving, State::kComplete), Move(State::kReceiving, State::kAborting),
    Move(State::kSuspended, State::kWaiting),  Move(State::kSuspended, State::kReceiving),
    Move(State::kSuspended, State::kComplete), Move(State::kSuspended, State::kAborting),
    Move(State::kAborting, State::kAborted)};

}  // namespace

const MachineTable& HandoffSinkTable() {
  static const MachineTable table{"handoff sink", "TransferCore, link thread", kStates,
                                  kTransitions};
  return table;
}

CellRect RectOf(const wire::ChunkHeader& header) {
  return {static_cast<int32_t>(header.plane), static_cast<int32_t>(header.n_planes),
          static_cast<int32_t>(header.first_page), static_cast<int32_t>(header.n_pages)};
}

HandoffSink::HandoffSink(const Ticket& ticket, Incarnation source, ConnectionId connection,
                         const PoolView* pool, const HandoffLimits& limits, int64_t now_us)
    : ticket_(ticket),
      source_(source),
      pool_(pool),
      limits_(limits),
      opened_us_(now_us),
      state_(HandoffSinkTable(), limits.transitions),
      since_us_(now_us),
      connection_(connection),
      pages_of_parts_missing_(ticket.first_own_page()) {}

void HandoffSink::NoRoom(int64_t expected_wait_us, HandoffEffects* out) {
  const int64_t wait_us = ticket_.promise_pages == 0 ? 0 : std::max<int64_t>(expected_wait_us, 0);
  out->messages.emplace_back(wire::NoRoom{handoff(), static_cast<uint64_t>(wait_us)});
}

void HandoffSink::Promise(int64_t now_us, ReceivePool* stock, HandoffEffects* out) {
  BATON_CHECK(state_ == State::kWaiting && ticket_.promise_pages > 0);
  stock->Promise(ticket_.promise_pages);
  SetAside(std::vector<int32_t>(static_cast<size_t>(ticket_.kv_pages), -1));
  // Pages of its parts.
  for (int32_t page = 0; page < ticket_.first_page; ++page) Bind(page, stock);
  state_ = State::kReceiving;
  since_us_ = now_us;
  OpenAgain(0, out);
}

void HandoffSink::Await(std::vector<int32_t> pages, int64_t now_us, HandoffEffects* out) {
  BATON_CHECK(part());
  SetAside(std::move(pages));
  PromiseNamed(now_us, out);
}

void HandoffSink::Await(AwaitInflow await, int64_t now_us, HandoffEffects* out) {
  BATON_CHECK(inflow());
  SetAside(std::move(await.pages));
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
    n_missing_ -= n_here;
  }
  PromiseNamed(now_us, out);
}

void HandoffSink::PromiseNamed(int64_t now_us, HandoffEffects* out) {
  BATON_CHECK(state_ == State::kWaiting || state_ == State::kSuspended);
  if (state_ == State::kSuspended) return;  // Resume promises later
  state_ = State::kReceiving;
  since_us_ = now_us;
  OpenAgain(0, out);
}

void HandoffSink::SetAside(std::vector<int32_t> page_ids) {
  BATON_CHECK(!promised_ && page_ids.size() == static_cast<size_t>(ticket_.kv_pages));
  promised_ = true;
  page_ids_ = std::move(page_ids);
  here_.assign(page_ids_.size() * pool_->planes.size(), false);
  n_missing_ = int64_t{ticket_.kv_pages - ticket_.first_own_page()} *
               static_cast<int64_t>(pool_->planes.size());
}

void HandoffSink::Bind(int32_t page, ReceivePool* stock) {
  page_ids_[page] = stock->Bind();
  ++n_bound_;
}

void HandoffSink::OpenAgain(int64_t expected_wait_us, HandoffEffects* out) {
  if (state_ == State::kWaiting) return NoRoom(expected_wait_us, out);
  // kSuspended: the answer follows when no operation of the old connection is under way. Other
  // states: CANCEL is under way.
  if (state_ != State::kReceiving) return;
  out->messages.emplace_back(
      wire::Promise{.handoff = handoff(),
                    .chunk_bytes = static_cast<uint64_t>(limits_.chunk_bytes),
                    .window_bytes = static_cast<uint64_t>(limits_.window_bytes),
                    .here_planes = static_cast<uint32_t>(planes_before_),
                    .here_pages = static_cast<uint32_t>(pages_before_)});
}

void HandoffSink::ConnectionLost(int64_t now_us) {
  connection_ = 0;
  resume_from_.reset();
  if (state_ != State::kWaiting && state_ != State::kReceiving) return;
  state_ = State::kSuspended;
  since_us_ = now_us;
}

void HandoffSink::Resume(ConnectionId connection, uint32_t resume_from, int64_t expected_wait_us,
                         int64_t now_us, HandoffEffects* out) {
  BATON_CHECK(state_ == State::kSuspended && connection_ == 0);
  connection_ = connection;
  resume_from_ = resume_from;
  if (promised_) return ResumeIfQuiet(now_us, out);
  state_ = State::kWaiting;
  since_us_ = opened_us_;  // includes the whole wait since then
  NoRoom(expected_wait_us, out);
}

void HandoffSink::ResumeIfQuiet(int64_t now_us, HandoffEffects* out) {
  if (state_ != State::kSuspended || !resume_from_ || !claims_.empty()) return;
  state_ = State::kReceiving;
  since_us_ = now_us;
  for (const uint32_t seq : landed_)
    if (seq >= *resume_from_) out->messages.emplace_back(wire::Ack{handoff(), seq});
  resume_from_.reset();
  OpenAgain(0, out);
}

HandoffSink::Decision HandoffSink::Check(const wire::ChunkHeader& header) const {
  using wire::NackReason;
  const auto refuse = [](NackReason reason) { return Decision{Verdict::kRefuse, reason}; };
  if (state_ != State::kReceiving) return refuse(NackReason::kUnknownTicket);
  const uint64_t plane_end = uint64_t{header.plane} + header.n_planes;
  const uint64_t page_end = uint64_t{header.first_page} + header.n_pages;
  if (header.n_planes == 0 || header.n_pages == 0 || plane_end > pool_->planes.size() ||
      page_end > page_ids_.size() ||
      header.first_page < static_cast<uint32_t>(ticket_.first_own_page()))
    return refuse(NackReason::kBadRange);
  const CellRect rect = RectOf(header);
  if (RectBytes(*pool_, rect) != header.length) return refuse(NackReason::kBadRange);
  if (header.length > limits_.chunk_bytes) return refuse(NackReason::kTooBig);

  int64_t n_here = 0;
  for (int32_t page = 0; page < rect.n_pages; ++page)
    for (int32_t plane = 0; plane < rect.n_planes; ++plane)
      n_here += here_[CellIndex(rect.first_page + page, rect.plane + plane)];
  if (n_here == int64_t{rect.n_pages} * rect.n_planes) return {.verdict = Verdict::kAlreadyHere};
  if (std::find(claims_.begin(), claims_.end(), rect) != claims_.end())
    return {.verdict = Verdict::kAlreadyComing};
  const auto overlaps = [&rect](const CellRect& claim) { return Overlap(claim, rect); };
  if (n_here > 0 || std::any_of(claims_.begin(), claims_.end(), overlaps))
    return refuse(NackReason::kBadRange);
  if (!claims_.empty() && claimed_bytes_ + header.length > limits_.window_bytes)
    return refuse(NackReason::kNotGranted);
  return {.verdict = Verdict::kAccept};
}

void HandoffSink::Claim(const wire::ChunkHeader& header, ReceivePool* stock) {
  BATON_DCHECK(Check(header).verdict == Verdict::kAccept);
  const CellRect rect = RectOf(header);
  for (int32_t page = rect.first_page; page < rect.first_page + rect.n_pages; ++page)
    if (page_ids_[page] < 0) Bind(page, stock);
  claims_.push_back(rect);
  claimed_bytes_ += header.length;
}

std::span<const int32_t> HandoffSink::PageIds(const wire::ChunkHeader& header) const {
  return std::span(page_ids_).subspan(header.first_page, header.n_pages);
}

void HandoffSink::Landed(const wire::ChunkHeader& header, Landing landing, int64_t now_us,
                         ReceivePool* stock, HandoffEffects* out) {
  const CellRect rect = RectOf(header);
  const auto claim = std::find(claims_.begin(), claims_.end(), rect);
  BATON_CHECK(claim != claims_.end());
  claims_.erase(claim);
  claimed_bytes_ -= header.length;
  if (state_ == State::kAborting) return FinishAbortIfQuiet(stock, out);
  BATON_CHECK(gathering());
  // A suspended sink acknowledges nothing: its next promise tells the source what to send again.
  const bool receiving = state_ == State::kReceiving;
  if (landing != Landing::kVerified) {
    if (receiving)
      out->messages.emplace_back(wire::Nack{handoff(), header.chunk_seq, wire::NackReason::kCrc});
    return ResumeIfQuiet(now_us, out);
  }
  if (receiving) since_us_ = now_us;
  for (int32_t page = 0; page < rect.n_pages; ++page)
    for (int32_t plane = 0; plane < rect.n_planes; ++plane)
      here_[CellIndex(rect.first_page + page, rect.plane + plane)] = true;
  n_missing_ -= int64_t{header.n_pages} * header.n_planes;
  digest_ += wire::ChunkDigest(header.chunk_seq, header.payload_crc);
  landed_.push_back(header.chunk_seq);
  if (inflow()) ReportCells(rect, out);
  if (receiving) out->messages.emplace_back(wire::Ack{handoff(), header.chunk_seq});
  CompleteIfAll(now_us, stock, out);
  ResumeIfQuiet(now_us, out);
}

void HandoffSink::ReportCells(const CellRect& rect, HandoffEffects* out) {
  for (int32_t plane = rect.plane; plane < rect.plane + rect.n_planes; ++plane)
    missing_of_plane_[plane] -= rect.n_pages;
  const auto n_planes = static_cast<int32_t>(missing_of_plane_.size());
  int32_t planes = planes_reported_, pages = pages_reported_;
  for (; planes < n_planes && missing_of_plane_[planes] == 0; ++planes) pages = 0;
  if (planes < n_planes)  // some of its pages are missing
    while (here_[CellIndex(pages, planes)]) ++pages;
  if (planes == planes_reported_ && pages == pages_reported_) return;
  BATON_CHECK(planes < n_planes || claims_.empty());  // after the last page, no more writes
  planes_reported_ = planes;
  pages_reported_ = pages;
  out->events.emplace_back(InflowArrived{
      .ticket_id = ticket_.id, .epoch = ticket_.epoch, .n_planes = planes, .n_pages = pages});
}

void HandoffSink::Handle(const wire::Done& done, int64_t now_us, ReceivePool* stock,
                         HandoffEffects* out) {
  if (state_ != State::kReceiving) return;
  if (!done_) since_us_ = now_us;  // the source repeats DONE while parts are missing
  done_ = done;
  CompleteIfAll(now_us, stock, out);
}

void HandoffSink::Handle(const wire::Commit& commit, int64_t now_us, ReceivePool* stock,
                         HandoffEffects* out) {
  if (state_ != State::kReceiving) return;
  if (!commit_) since_us_ = now_us;
  commit_ = commit;
  CompleteIfAll(now_us, stock, out);
  if (state_ == State::kReceiving && all_own_here())
    out->messages.emplace_back(wire::AwaitingParts{handoff()});
}

void HandoffSink::CompleteIfAll(int64_t now_us, ReceivePool* stock, HandoffEffects* out) {
  if (!all_own_here()) return;
  if (done_->digest != digest_)
    return Abort(absl::DataLossError("the chunks that arrived are not those that were sent "
                                     "(digests differ)"),
                 PeerNotice::kCancel, now_us, stock, out);
  if (pages_of_parts_missing_ > 0) return;
  BATON_CHECK(claims_.empty() && n_parts_open_ == 0);  // every cell is here, so none can be claimed
  std::vector<int32_t> pages = std::move(page_ids_);
  for (int32_t left = ticket_.promise_pages - n_bound_; left > 0; --left)
    pages.push_back(stock->Bind());
  n_bound_ = 0;
  state_ = State::kComplete;
  out->messages.emplace_back(wire::Committed{handoff()});
  if (ticket_.promise_pages == 0) return;
  out->events.emplace_back(
      HandoffArrived{.ticket_id = ticket_.id,
                     .epoch = ticket_.epoch,
                     .request_id = ticket_.request_id,
                     .pages = std::move(pages),
                     .record = {.first_token = commit_->first_token, .n_tokens = commit_->n_tokens},
                     .transfer_us = now_us - opened_us_});
}

absl::Status HandoffSink::CheckPart(const Ticket& part) const {
  const CellRect range{.n_planes = 1, .first_page = part.first_page, .n_pages = part.kv_pages};
  const bool fits = ticket_.promise_pages > 0 && part.request_id == ticket_.request_id &&
                    int64_t{part.first_page} + part.kv_pages <= ticket_.first_page;
  const auto overlaps = [&range](const CellRect& other) { return Overlap(other, range); };
  if (fits && std::none_of(parts_.begin(), parts_.end(), overlaps)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a part brings ", part.kv_pages, " pages from ", part.first_page,
                   " on, of a handoff that has parts before ", ticket_.first_page,
                   fits ? "; another part has some of these too" : ""));
}

std::vector<int32_t> HandoffSink::BeginPart(const Ticket& part) {
  BATON_CHECK(promised_ && gathering());
  parts_.push_back({.n_planes = 1, .first_page = part.first_page, .n_pages = part.kv_pages});
  ++n_parts_open_;
  const auto begin = page_ids_.begin() + part.first_page;
  return {begin, begin + part.kv_pages};
}

void HandoffSink::PartLanded(int64_t now_us) {
  if (state_ == State::kReceiving) since_us_ = now_us;
}

void HandoffSink::PartEnded(const HandoffSink& part, int64_t now_us, ReceivePool* stock,
                            HandoffEffects* out) {
  BATON_CHECK(part.ended() && n_parts_open_ > 0);
  --n_parts_open_;
  if (state_ == State::kAborting) return FinishAbortIfQuiet(stock, out);
  if (!part.complete()) return;
  pages_of_parts_missing_ -= part.ticket().kv_pages;
  CompleteIfAll(now_us, stock, out);
}

void HandoffSink::Abort(absl::Status status, PeerNotice notice, int64_t now_us, ReceivePool* stock,
                        HandoffEffects* out) {
  if (notice == PeerNotice::kCancelled) answer_cancel_ = true;
  if (state_ == State::kAborting || ended()) return;
  status_ = std::move(status);
  if (notice == PeerNotice::kCancel)
    out->messages.emplace_back(wire::FromStatus<wire::Cancel>(handoff(), status_));
  if (promised_) stock->Release(ticket_.promise_pages - n_bound_);
  state_ = State::kAborting;
  since_us_ = now_us;
  FinishAbortIfQuiet(stock, out);
}

void HandoffSink::FinishAbortIfQuiet(ReceivePool* stock, HandoffEffects* out) {
  const bool written = !claims_.empty() || n_parts_open_ > 0;
  if (written) return;
  state_ = State::kAborted;
  std::erase(page_ids_, -1);
  if (ticket_.promise_pages > 0) stock->Lend(page_ids_);
  page_ids_.clear();
  n_bound_ = 0;
  if (answer_cancel_)
    out->messages.emplace_back(wire::FromStatus<wire::Cancelled>(handoff(), status_));
  ReportAborted(out);
}

void HandoffSink::ReportAborted(HandoffEffects* out) const {
  if (part()) return;  // the main handoff reports
  if (!inflow()) {
    out->events.emplace_back(HandoffAborted{.ticket_id = ticket_.id,
                                            .epoch = ticket_.epoch,
                                            .request_id = ticket_.request_id,
                                            .status = status_});
  } else if (promised_ && planes_reported_ < static_cast<int32_t>(pool_->planes.size())) {
    out->events.emplace_back(
        InflowFailed{.ticket_id = ticket_.id, .epoch = ticket_.epoch, .status = status_});
  }
}

absl::Status HandoffSink::Overdue(int64_t now_us) const {
  const int64_t waited_us = now_us - since_us_;
  switch (state_) {
    case State::kWaiting:
      if (waited_us < limits_.room_timeout_us) break;
      return absl::ResourceExhaustedError(
          inflow() ? "no pages were named for the inflow in time"
          : part() ? "the handoff that this is a part of was not promised in time"
                   : "there was no room in time");
    case State::kReceiving:
      if (waited_us < limits_.idle_timeout_us) break;
      return absl::DeadlineExceededError("the source sent nothing in time");
    case State::kSuspended:
      if (waited_us < limits_.reconnect_timeout_us) break;
      return absl::UnavailableError("the connection broke, and the source did not return in time");
    case State::kComplete:
    case State::kAborting:
    case State::kAborted:
      break;
  }
  return absl::OkStatus();
}

void HandoffSink::Tick(int64_t now_us, HandoffEffects* out) {
  if (state_ == State::kAborting && !claims_.empty() && now_us - since_us_ >= kDrainTimeoutUs)
    out->close_connection = true;
}

size_t HandoffSink::CellIndex(int32_t page, int32_t plane) const {
  return static_cast<size_t>(page) * pool_->planes.size() + static_cast<size_t>(plane);
}

}  // namespace baton
