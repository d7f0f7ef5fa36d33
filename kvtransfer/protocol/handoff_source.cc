#include "kvtransfer/protocol/handoff_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using State = HandoffSource::State;

constexpr StateRow kStates[] = {
    {"connecting", "reconnect_timeout; kMaxConnects tries without progress", "ends, Unavailable"},
    {"opening", "answer_timeout", "CANCEL, ends, DeadlineExceeded"},
    {"waiting", "room_timeout", "CANCEL, ends, ResourceExhausted"},
    {"sending", "stall_timeout while anything is unacknowledged, idle_timeout else",
     "CANCEL, ends, DeadlineExceeded"},
    {"ending", "kDrainTimeoutUs while the link reads pages", "the connection is closed"},
    {"ended", "", ""}};
constexpr TransitionRow kTransitions[] = {
    Move(State::kConnecting, State::kOpening), Move(State::kConnecting, State::kEnding),
    Move(State::kOpening, State::kWaiting),    Move(State::kOpening, State::kSending),
    Move(State::kOpening, State::kConnecting), Move(State::kOpening, State::kEnding),
    Move(State::kWaiting, State::kSending),    Move(State::kWaiting, State::kConnecting),
    Move(State::kWaiting, State::kEnding),     Move(State::kSending, State::kConnecting),
    Move(State::kSending, State::kEnding),     Move(State::kEnding, State::kEnded)};

}  // namespace

const MachineTable& HandoffSourceTable() {
  static const MachineTable table{"handoff source", "TransferCore, link thread", kStates,
                                  kTransitions};
  return table;
}

HandoffSource::HandoffSource(const Ticket& ticket, const PoolView* pool,
                             const HandoffLimits& limits, int64_t now_us)
    : ticket_(ticket),
      pool_(pool),
      limits_(limits),
      state_(HandoffSourceTable(), limits.transitions),
      opened_us_(now_us),
      progress_us_(now_us),
      next_connect_us_(now_us),
      disconnected_us_(now_us) {}

// ---- the connection ----

bool HandoffSource::wants_connection(int64_t now_us) const {
  return state_ == State::kConnecting && !connect_under_way_ && now_us >= next_connect_us_;
}

void HandoffSource::ConnectStarted() {
  BATON_CHECK(state_ == State::kConnecting && !connect_under_way_);
  connect_under_way_ = true;
  ++n_connects_;
}

void HandoffSource::Connected(int64_t now_us, HandoffEffects* out) {
  if (state_ != State::kConnecting) return;
  connect_under_way_ = false;
  state_ = State::kOpening;
  progress_us_ = now_us;
  uint32_t resume_from = wire::kNewHandoff;
  if (promised_) {
    const auto missing = std::find_if(open_.begin(), open_.end(),
                                      [](const auto& chunk) { return !chunk.second.acked; });
    resume_from = missing == open_.end() ? n_chunks_ : missing->first;
  } else {
    opened_us_ = now_us;
  }
  out->messages.emplace_back(wire::Open{ticket_, resume_from});
}

void HandoffSource::ConnectionLost(absl::Status status, int64_t now_us, HandoffEffects* out) {
  if (ending()) return;
  if (state_ != State::kConnecting) {
    state_ = State::kConnecting;
    disconnected_us_ = now_us;
  }
  connect_under_way_ = false;
  lost_ = std::move(status);
  if (n_connects_ >= kMaxConnects) return End(lost_, false, now_us, out);
  next_connect_us_ = now_us + (n_connects_ <= 1 ? 0 : kFirstPauseUs << (n_connects_ - 2));
}

// ---- events ----

void HandoffSource::Add(SendCells cells) {
  if (ending()) return;
  const auto n_pages = static_cast<int32_t>(cells.pages.size());
  BATON_CHECK(cells.plane >= 0 && cells.n_planes >= 0);
  BATON_CHECK(n_pages == 0 || cells.first_page >= ticket_.first_page);
  BATON_CHECK(size_t(cells.plane + cells.n_planes) <= pool_->planes.size());
  BATON_CHECK(cells.first_page + n_pages <= ticket_.first_page + ticket_.n_pages);
  cells_given_ += int64_t{cells.n_planes} * n_pages;
  if (!ticket_.is_named()) return Queue(std::move(cells));
  // Split by plane, because a rank needs one plane after the other.
  for (int32_t plane = cells.plane; plane < cells.plane + cells.n_planes; ++plane)
    Queue({.ticket_id = cells.ticket_id,
           .plane = plane,
           .first_page = cells.first_page,
           .pages = cells.pages});
}

void HandoffSource::Queue(SendCells cells) {
  ChunkCutter cutter(std::move(cells));
  if (ticket_.is_named()) cutter.SkipTo(first_missing_);
  if (!cutter.finished()) to_cut_.emplace(cutter.place(), std::move(cutter));
}

void HandoffSource::Commit(const CommitRecord& record, int64_t now_us, HandoffEffects* out) {
  if (ending() || commit_) return;
  BATON_CHECK(cells_given_ ==
              int64_t{ticket_.n_pages} * static_cast<int64_t>(pool_->planes.size()));
  commit_ = record;
  if (state_ == State::kSending && all_announced()) SendCommit(now_us, out);
}

void HandoffSource::Handle(const wire::Message& message, int64_t now_us, HandoffEffects* out) {
  if (state_ == State::kEnded) return;
  if (const auto* cancel = std::get_if<wire::Cancel>(&message)) {
    answer_cancel_ = true;
    return End(wire::ToStatus(cancel->code, cancel->reason), false, now_us, out);
  }
  if (const auto* cancelled = std::get_if<wire::Cancelled>(&message))
    return End(wire::ToStatus(cancelled->code, cancelled->reason), false, now_us, out);
  if (state_ == State::kEnding) return;
  if (const auto* promise = std::get_if<wire::Promise>(&message)) {
    OnPromise(*promise, now_us, out);
  } else if (const auto* no_room = std::get_if<wire::NoRoom>(&message)) {
    if (state_ != State::kOpening || promised_) return;
    state_ = State::kWaiting;
    progress_us_ = now_us;
    out->events.emplace_back(
        HandoffNoRoom{ticket_.id, static_cast<int64_t>(no_room->expected_wait_us)});
  } else if (const auto* ack = std::get_if<wire::Ack>(&message)) {
    OnAck(ack->chunk_seq, now_us);
  } else if (const auto* nack = std::get_if<wire::Nack>(&message)) {
    OnNack(*nack, now_us, out);
  } else if (std::holds_alternative<wire::Committed>(message)) {
    if (!commit_sent_us_) return;
    arrived_bytes_ += std::exchange(unacked_bytes_, 0);  // the ACKs were lost with a connection
    End(absl::OkStatus(), false, now_us, out);
  }
}

void HandoffSource::OnPromise(const wire::Promise& promise, int64_t now_us, HandoffEffects* out) {
  if (state_ != State::kOpening && state_ != State::kWaiting) return;
  const auto min_of = [](int64_t ours, uint64_t theirs) {
    return static_cast<int64_t>(std::min(static_cast<uint64_t>(ours), theirs));
  };
  limits_.chunk_bytes = min_of(limits_.chunk_bytes, promise.chunk_bytes);
  limits_.window_bytes = min_of(limits_.window_bytes, promise.window_bytes);
  if (limits_.chunk_bytes < LargestPlane(*pool_))
    return End(absl::FailedPreconditionError(
                   absl::StrCat("the peer takes chunks of ", limits_.chunk_bytes,
                                " bytes, less than one cell; raise its chunk_bytes")),
               true, now_us, out);
  state_ = State::kSending;
  progress_us_ = now_us;
  if (promised_) {
    ResendWhatIsMissing(out);
  } else {
    promised_ = true;
    n_connects_ = 0;
    SkipWhatIsThere(promise);
    out->events.emplace_back(HandoffPromised{ticket_.id});
  }
  if (commit_ && all_announced()) SendCommit(now_us, out);
}

// Pages named by the sink's engine: all cells before the place are there, from whatever earlier
// handoff.
void HandoffSource::SkipWhatIsThere(const wire::Promise& promise) {
  if (!ticket_.is_named()) return;
  const auto min_of = [](size_t n, uint32_t theirs) {
    return static_cast<int32_t>(std::min(n, size_t{theirs}));
  };
  first_missing_ = {min_of(pool_->planes.size(), promise.here_planes),
                    min_of(static_cast<size_t>(ticket_.kv_pages), promise.here_pages)};
  auto given = std::exchange(to_cut_, {});
  for (auto& [place, cutter] : given) {
    cutter.SkipTo(first_missing_);
    if (!cutter.finished()) to_cut_.emplace(cutter.place(), std::move(cutter));
  }
}

// The sink has acknowledged all chunks it has: every other announced chunk is lost or was never
// accepted.
void HandoffSource::ResendWhatIsMissing(HandoffEffects* out) {
  to_resend_.clear();
  for (const auto& [seq, chunk] : open_)
    if (!chunk.acked) to_resend_.push_back(seq);
  out->resumed = true;
  out->kept_chunks = n_chunks_ - static_cast<uint32_t>(to_resend_.size());
}

void HandoffSource::OnAck(uint32_t seq, int64_t now_us) {
  const auto it = open_.find(seq);
  if (it == open_.end() || it->second.acked) return;
  progress_us_ = now_us;
  n_connects_ = 0;
  it->second.acked = true;
  unacked_bytes_ -= it->second.bytes;
  arrived_bytes_ += it->second.bytes;
  std::erase(to_resend_, seq);
  if (!it->second.being_read) open_.erase(it);
}

void HandoffSource::OnNack(const wire::Nack& nack, int64_t now_us, HandoffEffects* out) {
  const auto it = open_.find(nack.chunk_seq);
  if (it == open_.end() || it->second.acked) return;
  if (nack.reason != wire::NackReason::kCrc)
    return End(absl::InternalError(absl::StrCat("the peer refused a chunk, reason ",
                                                static_cast<uint32_t>(nack.reason))),
               true, now_us, out);
  if (std::find(to_resend_.begin(), to_resend_.end(), nack.chunk_seq) != to_resend_.end()) return;
  if (++it->second.n_damaged >= kMaxTries)
    return End(absl::DataLossError(absl::StrCat("a chunk arrived damaged ", kMaxTries, " times")),
               true, now_us, out);
  progress_us_ = now_us;
  to_resend_.push_back(nack.chunk_seq);
}

const HandoffSource::Chunk* HandoffSource::NextChunk() {
  if (state_ != State::kSending) return nullptr;
  for (const uint32_t seq : to_resend_) {
    const Chunk& chunk = open_.at(seq);
    if (!chunk.being_read) return &chunk;  // its bytes already count in the window
  }
  if (!next_ && !to_cut_.empty()) {
    auto first = to_cut_.extract(to_cut_.begin());
    ChunkCutter& cutter = first.mapped();
    next_ = Chunk{.seq = n_chunks_, .cut = *cutter.Next(*pool_, limits_.chunk_bytes)};
    next_->bytes = RectBytes(*pool_, next_->cut.rect);
    first.key() = cutter.place();
    if (!cutter.finished()) to_cut_.insert(std::move(first));
  }
  if (!next_) return nullptr;
  const bool fits = unacked_bytes_ == 0 || unacked_bytes_ + next_->bytes <= limits_.window_bytes;
  return fits ? &*next_ : nullptr;
}

void HandoffSource::Announced(uint32_t payload_crc, int64_t now_us, HandoffEffects* out) {
  const Chunk* next = NextChunk();
  BATON_CHECK(next != nullptr);
  Chunk* chunk;
  if (next_ && next == &*next_) {
    if (unacked_bytes_ == 0) progress_us_ = now_us;
    digest_ += wire::ChunkDigest(next_->seq, payload_crc);
    unacked_bytes_ += next_->bytes;
    ++n_chunks_;
    chunk = &open_.emplace(next_->seq, *std::move(next_)).first->second;
    next_.reset();
  } else {
    chunk = &open_.at(next->seq);
    std::erase(to_resend_, chunk->seq);
  }
  chunk->payload_crc = payload_crc;
  chunk->being_read = true;
  chunk->announced = true;
  ++n_reads_;
  if (commit_ && !commit_sent_us_ && all_announced()) SendCommit(now_us, out);
}

void HandoffSource::ChunkSent(uint32_t seq, HandoffEffects* out, int64_t now_us) {
  --n_reads_;
  const auto it = open_.find(seq);
  BATON_CHECK(it != open_.end());
  it->second.being_read = false;
  if (it->second.acked) open_.erase(it);
  FinishIfQuiet(now_us, out);
}

void HandoffSource::SendCommit(int64_t now_us, HandoffEffects* out) {
  if (!commit_sent_us_ && unacked_bytes_ == 0) progress_us_ = now_us;
  commit_sent_us_ = now_us;
  out->messages.emplace_back(
      wire::Done{.handoff = handoff(), .n_chunks = n_chunks_, .digest = digest_});
  out->messages.emplace_back(wire::Commit{
      .handoff = handoff(), .first_token = commit_->first_token, .n_tokens = commit_->n_tokens});
}

void HandoffSource::End(absl::Status status, bool tell_peer, int64_t now_us, HandoffEffects* out) {
  if (ending()) return;
  if (tell_peer && state_ != State::kConnecting)
    out->messages.emplace_back(wire::FromStatus<wire::Cancel>(handoff(), status));
  status_ = std::move(status);
  state_ = State::kEnding;
  ending_us_ = now_us;
  to_cut_.clear();
  next_.reset();
  to_resend_.clear();
  FinishIfQuiet(now_us, out);
}

void HandoffSource::FinishIfQuiet(int64_t now_us, HandoffEffects* out) {
  if (state_ != State::kEnding) return;
  if (n_reads_ > 0) return;
  state_ = State::kEnded;
  if (answer_cancel_)
    out->messages.emplace_back(wire::FromStatus<wire::Cancelled>(handoff(), status_));
  out->events.emplace_back(HandoffEnded{ticket_.id, status_, now_us - opened_us_});
}

void HandoffSource::Tick(int64_t now_us, HandoffEffects* out) {
  switch (state_) {
    case State::kConnecting:
      if (now_us - disconnected_us_ >= limits_.reconnect_timeout_us)
        End(lost_.ok() ? absl::UnavailableError("the peer could not be connected in time") : lost_,
            false, now_us, out);
      break;
    case State::kOpening:
      if (now_us - progress_us_ >= limits_.answer_timeout_us)
        End(absl::DeadlineExceededError("the peer did not answer OPEN"), true, now_us, out);
      break;
    case State::kWaiting:
      if (now_us - progress_us_ >= limits_.room_timeout_us)
        End(absl::ResourceExhaustedError("the peer had no room in time"), true, now_us, out);
      break;
    case State::kSending:
      if ((unacked_bytes_ > 0 || commit_sent_us_) &&
          now_us - progress_us_ >= limits_.stall_timeout_us) {
        End(absl::DeadlineExceededError("the peer stopped acknowledging"), true, now_us, out);
      } else if (commit_sent_us_ && now_us - *commit_sent_us_ >= kCommitResendUs) {
        SendCommit(now_us, out);
      } else if (now_us - progress_us_ >= limits_.idle_timeout_us) {
        End(absl::DeadlineExceededError("no KV was given to send in time"), true, now_us, out);
      }
      break;
    case State::kEnding:
      if (now_us - ending_us_ >= kDrainTimeoutUs) out->close_connection = true;
      break;
    case State::kEnded:
      break;
  }
}

}  // namespace baton
