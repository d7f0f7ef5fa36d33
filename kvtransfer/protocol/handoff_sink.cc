#include "kvtransfer/protocol/handoff_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using State = HandoffSink::State;

constexpr StateRow kStates[] = {
    {"waiting", "room_timeout of its promise", "CANCEL, aborts, ResourceExhausted"},
    {"receiving", "idle_timeout without a chunk, DONE or COMMIT of any handoff of its promise",
     "CANCEL, aborts, DeadlineExceeded"},
    {"suspended", "peer_timeout", "aborts, Unavailable"},
    {"complete", "", ""},
    {"aborting", "kDrainTimeoutUs while pages are written",
     "the connection is closed if the link does"},
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
                         PagePromise* promise, TransferSetup* setup, int64_t now_us)
    : ticket_(ticket),
      source_(source),
      promise_(promise),
      setup_(setup),
      state_(HandoffSinkTable(), setup->options.transitions),
      since_us_(now_us),
      connection_(connection) {}

void HandoffSink::Answer(int64_t expected_wait_us) {
  if (state_ == State::kWaiting) {
    const int64_t wait_us = ticket_.is_named() ? 0 : std::max<int64_t>(expected_wait_us, 0);
    effects_.messages.emplace_back(wire::NoRoom{handoff(), static_cast<uint64_t>(wait_us)});
  } else if (state_ == State::kReceiving) {
    const CellPlace& first_missing = promise_->first_missing();
    effects_.messages.emplace_back(
        wire::Promise{.handoff = handoff(),
                      .chunk_bytes = static_cast<uint64_t>(setup_->options.chunk_bytes),
                      .window_bytes = static_cast<uint64_t>(setup_->options.window_bytes),
                      .here_planes = static_cast<uint32_t>(first_missing.plane),
                      .here_pages = static_cast<uint32_t>(first_missing.page),
                      .held_pages = static_cast<uint32_t>(promise_->n_held())});
  }
  // kSuspended: the answer follows when no operation of the old connection is under way. Other
  // states: CANCEL is under way.
}

void HandoffSink::Promised() {
  BATON_CHECK(promise_->has_pages() && landed_.empty());
  const CellRect range{.n_planes = static_cast<int32_t>(setup_->pool.planes.size()),
                       .first_page = ticket_.first_page,
                       .n_pages = ticket_.n_pages};
  n_missing_ = int64_t{range.n_pages} * range.n_planes - promise_->CountHere(range);
  if (state_ != State::kWaiting) return;  // Resume promises later
  state_ = State::kReceiving;
  Answer(0);
}

void HandoffSink::ConnectionLost(int64_t now_us) {
  connection_ = 0;
  resume_from_.reset();
  if (state_ != State::kWaiting && state_ != State::kReceiving) return;
  state_ = State::kSuspended;
  since_us_ = now_us;
}

void HandoffSink::Resume(ConnectionId connection, uint32_t resume_from, int64_t expected_wait_us,
                         int64_t now_us) {
  BATON_CHECK(state_ == State::kSuspended && connection_ == 0);
  connection_ = connection;
  resume_from_ = resume_from;
  if (promise_->has_pages()) return ResumeIfQuiet(now_us);
  state_ = State::kWaiting;
  Answer(expected_wait_us);
}

void HandoffSink::ResumeIfQuiet(int64_t now_us) {
  if (state_ != State::kSuspended || !resume_from_ || !claims_.empty()) return;
  state_ = State::kReceiving;
  promise_->Touch(now_us);
  for (const uint32_t seq : landed_)
    if (seq >= *resume_from_) effects_.messages.emplace_back(wire::Ack{handoff(), seq});
  resume_from_.reset();
  Answer(0);
}

HandoffSink::Decision HandoffSink::Check(const wire::ChunkHeader& header) const {
  using wire::NackReason;
  const auto refuse = [](NackReason reason) { return Decision{Verdict::kRefuse, reason}; };
  if (state_ != State::kReceiving) return refuse(NackReason::kUnknownTicket);
  const uint64_t plane_end = uint64_t{header.plane} + header.n_planes;
  const uint64_t page_end = uint64_t{header.first_page} + header.n_pages;
  if (header.n_planes == 0 || header.n_pages == 0 || plane_end > setup_->pool.planes.size() ||
      header.first_page < static_cast<uint32_t>(ticket_.first_page) ||
      page_end > static_cast<uint64_t>(ticket_.first_page + ticket_.n_pages))
    return refuse(NackReason::kBadRange);
  const CellRect rect = RectOf(header);
  if (RectBytes(setup_->pool, rect) != header.length) return refuse(NackReason::kBadRange);
  if (header.length > setup_->options.chunk_bytes) return refuse(NackReason::kTooBig);

  const int64_t n_here = promise_->CountHere(rect);
  if (n_here == int64_t{rect.n_pages} * rect.n_planes) return {.verdict = Verdict::kAlreadyHere};
  bool overlaps = n_here > 0;
  int64_t window_bytes = claims_.empty() ? 0 : header.length;  // the first one always fits
  for (const CellRect& claim : claims_) {
    if (claim == rect) return {.verdict = Verdict::kAlreadyComing};
    overlaps |= Overlap(claim, rect);
    window_bytes += RectBytes(setup_->pool, claim);
  }
  if (overlaps) return refuse(NackReason::kBadRange);
  if (window_bytes > setup_->options.window_bytes) return refuse(NackReason::kNotGranted);
  return {.verdict = Verdict::kAccept};
}

Cells HandoffSink::Claim(const wire::ChunkHeader& header) {
  BATON_DCHECK(Check(header).verdict == Verdict::kAccept);
  const CellRect rect = RectOf(header);
  claims_.push_back(rect);
  return promise_->Bind(rect);
}

void HandoffSink::Landed(const wire::ChunkHeader& header, bool verified, int64_t now_us) {
  const CellRect rect = RectOf(header);
  const auto claim = std::find(claims_.begin(), claims_.end(), rect);
  BATON_CHECK(claim != claims_.end());
  claims_.erase(claim);
  if (state_ == State::kAborting) return FinishAbortIfQuiet(now_us);
  BATON_CHECK(gathering());
  // A suspended sink acknowledges nothing: its next promise tells the source what to send again.
  const bool answers = state_ == State::kReceiving;
  if (verified) {
    promise_->Landed(rect, now_us);
    n_missing_ -= int64_t{rect.n_pages} * rect.n_planes;
    digest_ += wire::ChunkDigest(header.chunk_seq, header.payload_crc);
    landed_.push_back(header.chunk_seq);
    if (answers) effects_.messages.emplace_back(wire::Ack{handoff(), header.chunk_seq});
    CompleteIfAll(now_us);
  } else if (answers) {
    effects_.messages.emplace_back(wire::Nack{handoff(), header.chunk_seq, wire::NackReason::kCrc});
  }
  ResumeIfQuiet(now_us);
}

void HandoffSink::Handle(const wire::Message& message, int64_t now_us) {
  if (const auto* cancel = std::get_if<wire::Cancel>(&message)) {
    answer_cancel_ = true;
    return Abort(wire::ToStatus(cancel->code, cancel->reason), now_us);
  }
  if (state_ != State::kReceiving) return;
  if (const auto* done = std::get_if<wire::Done>(&message)) {
    if (!done_) promise_->Touch(now_us);
    done_ = *done;
  } else if (const auto* commit = std::get_if<wire::Commit>(&message)) {
    if (!commit_) promise_->Touch(now_us);
    commit_ = *commit;
  }
  CompleteIfAll(now_us);
}

void HandoffSink::CompleteIfAll(int64_t now_us) {
  if (n_missing_ > 0 || !done_ || !commit_) return;
  if (done_->digest != digest_)
    return Abort(absl::DataLossError("the chunks that arrived are not those that were sent "
                                     "(digests differ)"),
                 now_us);
  BATON_CHECK(claims_.empty());  // every cell is here, so none can be claimed
  state_ = State::kComplete;
  effects_.messages.emplace_back(wire::Committed{handoff()});
  promise_->Ended(ticket_, CommitRecord{commit_->first_token, commit_->n_tokens}, now_us);
}

void HandoffSink::Abort(absl::Status status, int64_t now_us) {
  if (failed() || ended()) return;
  status_ = std::move(status);
  if (!answer_cancel_)
    effects_.messages.emplace_back(wire::FromStatus<wire::Cancel>(handoff(), status_));
  state_ = State::kAborting;
  since_us_ = now_us;
  FinishAbortIfQuiet(now_us);
}

void HandoffSink::FinishAbortIfQuiet(int64_t now_us) {
  if (!claims_.empty()) return;
  state_ = State::kAborted;
  if (answer_cancel_)
    effects_.messages.emplace_back(wire::FromStatus<wire::Cancelled>(handoff(), status_));
  promise_->Ended(ticket_, std::nullopt, now_us);
}

void HandoffSink::Tick(int64_t now_us) {
  const int64_t waited_us = now_us - since_us_;
  if (state_ == State::kSuspended && waited_us >= setup_->options.peer_timeout_ms * 1000) {
    Abort(absl::UnavailableError("the connection broke, and the source did not return in time"),
          now_us);
  } else if (state_ == State::kAborting && waited_us >= kDrainTimeoutUs) {
    effects_.close_connection = true;
  }
}

}  // namespace baton
