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
    {"receiving", "idle_timeout without a chunk, DONE or COMMIT of any handoff of its promise",
     "CANCEL, aborts, DeadlineExceeded"},
    {"suspended", "reconnect_timeout", "aborts, Unavailable"},
    {"complete", "", ""},
    {"aborting", "kDrainTimeoutUs while receives are posted", "the connection is closed"},
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
  static const MachineTable table{"handoff sink", "Sinks, link thread", kStates, kTransitions};
  return table;
}

CellRect RectOf(const wire::ChunkHeader& header) {
  return {static_cast<int32_t>(header.plane), static_cast<int32_t>(header.n_planes),
          static_cast<int32_t>(header.first_page), static_cast<int32_t>(header.n_pages)};
}

HandoffSink::HandoffSink(const Ticket& ticket, Incarnation source, ConnectionId connection,
                         PagePromise* promise, const PoolView* pool, const HandoffLimits& limits,
                         int64_t now_us)
    : ticket_(ticket),
      source_(source),
      promise_(promise),
      pool_(pool),
      limits_(limits),
      opened_us_(now_us),
      state_(HandoffSinkTable(), limits.transitions),
      since_us_(now_us),
      connection_(connection) {}

void HandoffSink::NoRoom(int64_t expected_wait_us, HandoffEffects* out) {
  const int64_t wait_us = ticket_.is_named() ? 0 : std::max<int64_t>(expected_wait_us, 0);
  out->messages.emplace_back(wire::NoRoom{handoff(), static_cast<uint64_t>(wait_us)});
}

void HandoffSink::Promised(int64_t now_us, HandoffEffects* out) {
  BATON_CHECK(!promised_ && promise_->has_pages());
  promised_ = true;
  const CellRect range{.n_planes = static_cast<int32_t>(pool_->planes.size()),
                       .first_page = ticket_.first_page,
                       .n_pages = ticket_.n_pages};
  n_missing_ = int64_t{range.n_pages} * range.n_planes - promise_->CountHere(range);
  if (state_ != State::kWaiting) return;  // Resume promises later
  state_ = State::kReceiving;
  since_us_ = now_us;
  OpenAgain(0, out);
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
                    .here_planes = static_cast<uint32_t>(promise_->planes_before()),
                    .here_pages = static_cast<uint32_t>(promise_->pages_before())});
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
  promise_->Touch(now_us);
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
      header.first_page < static_cast<uint32_t>(ticket_.first_page) ||
      page_end > static_cast<uint64_t>(ticket_.first_page + ticket_.n_pages))
    return refuse(NackReason::kBadRange);
  const CellRect rect = RectOf(header);
  if (RectBytes(*pool_, rect) != header.length) return refuse(NackReason::kBadRange);
  if (header.length > limits_.chunk_bytes) return refuse(NackReason::kTooBig);

  const int64_t n_here = promise_->CountHere(rect);
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
  promise_->Bind(rect, stock);
  claims_.push_back(rect);
  claimed_bytes_ += header.length;
}

std::span<const int32_t> HandoffSink::PageIds(const wire::ChunkHeader& header) const {
  return promise_->PageIds(static_cast<int32_t>(header.first_page),
                           static_cast<int32_t>(header.n_pages));
}

void HandoffSink::Landed(const wire::ChunkHeader& header, Landing landing, int64_t now_us,
                         HandoffEffects* out) {
  const CellRect rect = RectOf(header);
  const auto claim = std::find(claims_.begin(), claims_.end(), rect);
  BATON_CHECK(claim != claims_.end());
  claims_.erase(claim);
  claimed_bytes_ -= header.length;
  if (state_ == State::kAborting) return FinishAbortIfQuiet(out);
  BATON_CHECK(gathering());
  // A suspended sink acknowledges nothing: its next promise tells the source what to send again.
  const bool receiving = state_ == State::kReceiving;
  if (landing != Landing::kVerified) {
    if (receiving)
      out->messages.emplace_back(wire::Nack{handoff(), header.chunk_seq, wire::NackReason::kCrc});
    return ResumeIfQuiet(now_us, out);
  }
  promise_->Landed(rect, now_us, &out->events);
  n_missing_ -= int64_t{header.n_pages} * header.n_planes;
  digest_ += wire::ChunkDigest(header.chunk_seq, header.payload_crc);
  landed_.push_back(header.chunk_seq);
  if (receiving) out->messages.emplace_back(wire::Ack{handoff(), header.chunk_seq});
  CompleteIfAll(now_us, out);
  ResumeIfQuiet(now_us, out);
}

void HandoffSink::Handle(const wire::Done& done, int64_t now_us, HandoffEffects* out) {
  if (state_ != State::kReceiving) return;
  if (!done_) promise_->Touch(now_us);
  done_ = done;
  CompleteIfAll(now_us, out);
}

void HandoffSink::Handle(const wire::Commit& commit, int64_t now_us, HandoffEffects* out) {
  if (state_ != State::kReceiving) return;
  if (!commit_) promise_->Touch(now_us);
  commit_ = commit;
  CompleteIfAll(now_us, out);
}

void HandoffSink::CompleteIfAll(int64_t now_us, HandoffEffects* out) {
  if (n_missing_ > 0 || !done_ || !commit_) return;
  if (done_->digest != digest_)
    return Abort(absl::DataLossError("the chunks that arrived are not those that were sent "
                                     "(digests differ)"),
                 PeerNotice::kCancel, now_us, out);
  BATON_CHECK(claims_.empty());  // every cell is here, so none can be claimed
  state_ = State::kComplete;
  out->messages.emplace_back(wire::Committed{handoff()});
}

void HandoffSink::Abort(absl::Status status, PeerNotice notice, int64_t now_us,
                        HandoffEffects* out) {
  if (notice == PeerNotice::kCancelled) answer_cancel_ = true;
  if (state_ == State::kAborting || ended()) return;
  status_ = std::move(status);
  if (notice == PeerNotice::kCancel)
    out->messages.emplace_back(wire::FromStatus<wire::Cancel>(handoff(), status_));
  state_ = State::kAborting;
  since_us_ = now_us;
  FinishAbortIfQuiet(out);
}

void HandoffSink::FinishAbortIfQuiet(HandoffEffects* out) {
  if (!claims_.empty()) return;
  state_ = State::kAborted;
  if (answer_cancel_)
    out->messages.emplace_back(wire::FromStatus<wire::Cancelled>(handoff(), status_));
}

absl::Status HandoffSink::Overdue(int64_t now_us) const {
  const int64_t waited_us = now_us - since_us_;
  switch (state_) {
    case State::kWaiting:
      if (waited_us < limits_.room_timeout_us) break;
      return absl::ResourceExhaustedError("the promise got no pages in time");
    case State::kReceiving:
      if (now_us - promise_->touched_us() < limits_.idle_timeout_us) break;
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

}  // namespace baton
