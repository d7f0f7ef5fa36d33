#include "kvtransfer/protocol/handoff_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

using State = HandoffSource::State;

constexpr StateRow kStates[] = {
    {"connecting", "peer_timeout; kMaxConnects tries without progress", "ends, Unavailable"},
    {"opening", "peer_timeout", "CANCEL, ends, DeadlineExceeded"},
    {"waiting", "room_timeout", "CANCEL, ends, ResourceExhausted"},
    {"sending", "2.5 times peer_timeout while a chunk or COMMIT is unanswered, idle_timeout else",
     "CANCEL, ends, DeadlineExceeded"},
    {"ending", "kDrainTimeoutUs while pages are read", "the connection is closed if the link does"},
    {"ended", "", ""}};
constexpr TransitionRow kTransitions[] = {
    Move(State::kConnecting, State::kOpening), Move(State::kConnecting, State::kEnding),
    Move(State::kOpening, State::kWaiting),    Move(State::kOpening, State::kSending),
    Move(State::kOpening, State::kConnecting), Move(State::kOpening, State::kEnding),
    Move(State::kWaiting, State::kSending),    Move(State::kWaiting, State::kConnecting),
    Move(State::kWaiting, State::kEnding),     Move(State::kSending, State::kConnecting),
    Move(State::kSending, State::kEnding),     Move(State::kEnding, State::kEnded)};

// The smaller one of a number of ours and any number of the peer's.
template <typename Own>
Own MinOf(Own own, uint64_t theirs) {
  return static_cast<Own>(std::min(static_cast<uint64_t>(own), theirs));
}

}  // namespace

const MachineTable& HandoffSourceTable() {
  static const MachineTable table{"handoff source", "Sources, link thread", kStates, kTransitions};
  return table;
}

HandoffSource::HandoffSource(const Ticket& ticket, TransferSetup* setup, int64_t now_us)
    : ticket_(ticket),
      setup_(setup),
      chunk_bytes_(setup->options.chunk_bytes),
      window_bytes_(setup->options.window_bytes),
      state_(HandoffSourceTable(), setup->options.transitions),
      opened_us_(now_us),
      since_us_(now_us),
      connect_at_us_(now_us),
      lost_(absl::UnavailableError("the peer could not be connected in time")) {}

// ---- the connection ----

bool HandoffSource::StartConnect(int64_t now_us) {
  if (state_ != State::kConnecting || !connect_at_us_ || now_us < *connect_at_us_) return false;
  connect_at_us_.reset();
  ++n_connects_;
  return true;
}

void HandoffSource::Connected(int64_t now_us) {
  if (state_ != State::kConnecting) return;
  state_ = State::kOpening;
  since_us_ = now_us;
  uint32_t resume_from = wire::kNewHandoff;
  if (promised_) {
    const auto missing = std::find_if(open_.begin(), open_.end(),
                                      [](const auto& chunk) { return !chunk.second.acked; });
    resume_from = missing == open_.end() ? n_chunks_ : missing->first;
  } else {
    opened_us_ = now_us;
  }
  effects_.messages.emplace_back(wire::Open{ticket_, resume_from});
}

void HandoffSource::ConnectionLost(absl::Status status, int64_t now_us) {
  if (ending()) return;
  if (state_ != State::kConnecting) {
    // A sink that hears nothing closes the connection just before this end gives OPEN up: it has
    // waited long enough.
    if (state_ != State::kOpening) since_us_ = now_us;
    state_ = State::kConnecting;
  }
  lost_ = std::move(status);
  if (n_connects_ >= kMaxConnects) return End(lost_, now_us);
  connect_at_us_ = now_us + (n_connects_ <= 1 ? 0 : kFirstPauseUs << (n_connects_ - 2));
}

// ---- events ----

void HandoffSource::Add(SendCells cells) {
  if (ending()) return;
  const auto n_pages = static_cast<int32_t>(cells.pages.size());
  BATON_CHECK(cells.plane >= 0 && cells.n_planes >= 0);
  BATON_CHECK(n_pages == 0 || cells.first_page >= ticket_.first_page);
  BATON_CHECK(size_t(cells.plane + cells.n_planes) <= setup_->pool.planes.size());
  BATON_CHECK(cells.first_page + n_pages <= ticket_.first_page + ticket_.n_pages);
  cells_given_ += int64_t{cells.n_planes} * n_pages;
  if (!ticket_.is_named()) return Queue(ChunkCutter(std::move(cells)));
  // Split by plane, because a rank needs one plane after the other.
  for (int32_t plane = cells.plane; plane < cells.plane + cells.n_planes; ++plane)
    Queue(ChunkCutter({.ticket_id = cells.ticket_id,
                       .plane = plane,
                       .first_page = cells.first_page,
                       .pages = cells.pages,
                       .after = cells.after}));
}

void HandoffSource::Queue(ChunkCutter cutter) {
  if (ticket_.is_named())
    cutter.SkipTo(first_missing_);
  else
    cutter.SkipPages(held_pages_);
  if (cutter.finished()) return;
  const std::pair key{cutter.after(), cutter.place()};
  to_cut_.emplace(key, std::move(cutter));
}

void HandoffSource::Commit(const CommitRecord& record, int64_t now_us) {
  if (ending() || commit_) return;
  BATON_CHECK(cells_given_ ==
              int64_t{ticket_.n_pages} * static_cast<int64_t>(setup_->pool.planes.size()));
  commit_ = record;
  if (state_ == State::kSending && all_announced()) SendCommit(now_us);
}

void HandoffSource::Handle(const wire::Message& message, int64_t now_us) {
  if (state_ == State::kEnded) return;
  if (const auto* cancel = std::get_if<wire::Cancel>(&message)) {
    answer_cancel_ = true;
    return EndSilently(wire::ToStatus(cancel->code, cancel->reason), now_us);
  }
  if (const auto* cancelled = std::get_if<wire::Cancelled>(&message))
    return EndSilently(wire::ToStatus(cancelled->code, cancelled->reason), now_us);
  if (state_ == State::kEnding) return;
  if (const auto* promise = std::get_if<wire::Promise>(&message)) {
    OnPromise(*promise, now_us);
  } else if (const auto* no_room = std::get_if<wire::NoRoom>(&message)) {
    if (state_ != State::kOpening || promised_) return;
    state_ = State::kWaiting;
    since_us_ = now_us;
    const int64_t longest_us = setup_->options.room_timeout_ms * 1000;  // nobody waits longer
    setup_->events.emplace_back(
        HandoffNoRoom{ticket_.id, MinOf(longest_us, no_room->expected_wait_us)});
  } else if (const auto* ack = std::get_if<wire::Ack>(&message)) {
    OnAck(ack->chunk_seq, now_us);
  } else if (const auto* nack = std::get_if<wire::Nack>(&message)) {
    OnNack(*nack, now_us);
  } else if (std::holds_alternative<wire::Committed>(message)) {
    if (!commit_sent_us_) return;
    arrived_bytes_ += std::exchange(unacked_bytes_, 0);  // the ACKs were lost with a connection
    EndSilently(absl::OkStatus(), now_us);
  }
}

void HandoffSource::OnPromise(const wire::Promise& promise, int64_t now_us) {
  if (state_ != State::kOpening && state_ != State::kWaiting) return;
  chunk_bytes_ = MinOf(chunk_bytes_, promise.chunk_bytes);
  window_bytes_ = MinOf(window_bytes_, promise.window_bytes);
  if (chunk_bytes_ < LargestPlane(setup_->pool))
    return End(absl::FailedPreconditionError(
                   absl::StrCat("the peer takes chunks of ", chunk_bytes_,
                                " bytes, less than one cell; raise its chunk_bytes")),
               now_us);
  state_ = State::kSending;
  since_us_ = now_us;
  if (promised_) {
    // The sink has acknowledged all chunks it has: every other announced chunk is lost or was never
    // accepted.
    to_resend_.clear();
    for (const auto& [seq, chunk] : open_)
      if (!chunk.acked) to_resend_.insert(seq);
    ++setup_->counters.handoffs_resumed;
    setup_->counters.kept_chunks += n_chunks_ - to_resend_.size();
  } else {
    promised_ = true;
    n_connects_ = 0;
    SkipWhatIsThere(promise);
    setup_->events.emplace_back(HandoffPromised{ticket_.id});
  }
  if (commit_ && all_announced()) SendCommit(now_us);
}

void HandoffSource::SkipWhatIsThere(const wire::Promise& promise) {
  held_pages_ = MinOf(ticket_.kv_pages, promise.held_pages);
  first_missing_ = {MinOf(static_cast<int32_t>(setup_->pool.planes.size()), promise.here_planes),
                    MinOf(ticket_.kv_pages, promise.here_pages)};
  for (auto& [order, cutter] : std::exchange(to_cut_, {})) Queue(std::move(cutter));
}

void HandoffSource::OnAck(uint32_t seq, int64_t now_us) {
  const auto it = open_.find(seq);
  if (it == open_.end() || it->second.acked || !it->second.announced) return;
  since_us_ = now_us;
  n_connects_ = 0;
  it->second.acked = true;
  unacked_bytes_ -= it->second.bytes;
  arrived_bytes_ += it->second.bytes;
  to_resend_.erase(seq);
  if (!it->second.being_read) open_.erase(it);
}

void HandoffSource::OnNack(const wire::Nack& nack, int64_t now_us) {
  const auto it = open_.find(nack.chunk_seq);
  if (it == open_.end() || it->second.acked || !it->second.announced) return;
  if (nack.reason != wire::NackReason::kCrc)
    return End(absl::InternalError(absl::StrCat("the peer refused a chunk, reason ",
                                                static_cast<uint32_t>(nack.reason))),
               now_us);
  if (to_resend_.contains(nack.chunk_seq)) return;
  if (++it->second.n_damaged >= kMaxTries)
    return End(absl::DataLossError(absl::StrCat("a chunk arrived damaged ", kMaxTries, " times")),
               now_us);
  since_us_ = now_us;
  to_resend_.insert(nack.chunk_seq);
}

const HandoffSource::Chunk* HandoffSource::NextChunk() {
  if (state_ != State::kSending) return nullptr;
  for (const uint32_t seq : to_resend_) {
    const Chunk& chunk = open_.at(seq);
    if (!chunk.being_read) return &chunk;  // its bytes already count in the window
  }
  if (!next_ && !to_cut_.empty()) {
    ChunkCutter cutter = std::move(to_cut_.extract(to_cut_.begin()).mapped());
    next_ = Chunk{.seq = n_chunks_, .cut = *cutter.Next(setup_->pool, chunk_bytes_)};
    next_->bytes = RectBytes(setup_->pool, next_->cut.rect);
    Queue(std::move(cutter));
  }
  if (!next_) return nullptr;
  const bool fits = unacked_bytes_ == 0 || unacked_bytes_ + next_->bytes <= window_bytes_;
  return fits ? &*next_ : nullptr;
}

void HandoffSource::Begun() {
  const Chunk* next = NextChunk();
  BATON_CHECK(next != nullptr);
  const uint32_t seq = next->seq;
  if (to_resend_.erase(seq) == 0) {
    unacked_bytes_ += next->bytes;
    unannounced_bytes_ += next->bytes;
    ++n_chunks_;
    open_.emplace(seq, *std::exchange(next_, std::nullopt));
  }
  open_.at(seq).being_read = true;
}

bool HandoffSource::Announced(uint32_t seq, uint32_t payload_crc, int64_t now_us) {
  Chunk& chunk = open_.at(seq);
  BATON_CHECK(chunk.being_read);
  if (state_ != State::kSending || chunk.acked) return false;
  to_resend_.erase(seq);  // promised anew while the chunk was read
  if (chunk.announced) {
    ++setup_->counters.resent_chunks;
  } else {
    if (unacked_bytes_ == unannounced_bytes_) since_us_ = now_us;
    unannounced_bytes_ -= chunk.bytes;
    digest_ += wire::ChunkDigest(seq, payload_crc);
    chunk.announced = true;
  }
  if (commit_ && !commit_sent_us_ && all_announced()) SendCommit(now_us);
  return true;
}

void HandoffSource::Released(uint32_t seq, int64_t now_us) {
  const auto it = open_.find(seq);
  BATON_CHECK(it != open_.end());
  it->second.being_read = false;
  if (it->second.acked || ending()) open_.erase(it);
  FinishIfQuiet(now_us);
}

void HandoffSource::SendCommit(int64_t now_us) {
  if (!commit_sent_us_ && unacked_bytes_ == 0) since_us_ = now_us;
  commit_sent_us_ = now_us;
  effects_.messages.emplace_back(
      wire::Done{.handoff = handoff(), .n_chunks = n_chunks_, .digest = digest_});
  effects_.messages.emplace_back(wire::Commit{
      .handoff = handoff(), .first_token = commit_->first_token, .n_tokens = commit_->n_tokens});
}

void HandoffSource::End(absl::Status status, int64_t now_us) {
  if (ending()) return;
  if (state_ != State::kConnecting)
    effects_.messages.emplace_back(wire::FromStatus<wire::Cancel>(handoff(), status));
  EndSilently(std::move(status), now_us);
}

void HandoffSource::EndSilently(absl::Status status, int64_t now_us) {
  if (ending()) return;
  status_ = std::move(status);
  state_ = State::kEnding;
  since_us_ = now_us;
  to_cut_.clear();
  next_.reset();
  to_resend_.clear();
  std::erase_if(open_, [](const auto& chunk) { return !chunk.second.being_read; });
  FinishIfQuiet(now_us);
}

void HandoffSource::FinishIfQuiet(int64_t now_us) {
  if (state_ != State::kEnding) return;
  if (!open_.empty()) return;
  state_ = State::kEnded;
  ++(status_.ok()                 ? setup_->counters.handoffs_committed
     : absl::IsCancelled(status_) ? setup_->counters.handoffs_cancelled
                                  : setup_->counters.handoffs_failed);
  if (answer_cancel_)
    effects_.messages.emplace_back(wire::FromStatus<wire::Cancelled>(handoff(), status_));
  setup_->events.emplace_back(HandoffEnded{ticket_.id, status_, now_us - opened_us_});
}

void HandoffSource::Tick(int64_t now_us) {
  const TransferOptions& options = setup_->options;
  const int64_t waited_us = now_us - since_us_;
  const auto end_after = [&](int64_t ms, absl::Status status) {
    if (waited_us >= ms * 1000) End(std::move(status), now_us);
  };
  switch (state_) {
    case State::kConnecting:
      end_after(options.peer_timeout_ms, lost_);
      break;
    case State::kOpening:
      end_after(options.peer_timeout_ms,
                absl::DeadlineExceededError("the peer did not answer OPEN"));
      break;
    case State::kWaiting:
      end_after(options.room_timeout_ms,
                absl::ResourceExhaustedError("the peer had no room in time"));
      break;
    case State::kSending:
      if (bytes_under_way() > 0 || commit_sent_us_)
        end_after(options.peer_timeout_ms * 5 / 2,  // a chunk takes long over a slow link
                  absl::DeadlineExceededError("the peer stopped acknowledging"));
      end_after(options.idle_timeout_ms,
                absl::DeadlineExceededError("no KV was given to send in time"));
      if (!ending() && commit_sent_us_ && now_us - *commit_sent_us_ >= kCommitResendUs)
        SendCommit(now_us);
      break;
    case State::kEnding:
      if (waited_us >= kDrainTimeoutUs) effects_.close_connection = true;
      break;
    case State::kEnded:
      break;
  }
}

}  // namespace baton
