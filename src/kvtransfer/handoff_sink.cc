#include "kvtransfer/handoff_sink.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {

CellRect RectOf(const wire::ChunkHeader& header) {
  return {static_cast<int32_t>(header.plane), static_cast<int32_t>(header.n_planes),
          static_cast<int32_t>(header.first_page), static_cast<int32_t>(header.n_pages)};
}

HandoffSink::HandoffSink(const Ticket& ticket, ConnectionId connection, const PoolView* pool,
                         const HandoffLimits& limits, int64_t now_us)
    : ticket_(ticket), connection_(connection), pool_(pool), limits_(limits), opened_us_(now_us) {}

void HandoffSink::NoRoom(int64_t expected_wait_us, HandoffEffects* out) {
  out->messages.emplace_back(
      wire::NoRoom{handoff(), static_cast<uint64_t>(std::max<int64_t>(expected_wait_us, 0))});
}

void HandoffSink::Promise(PageStock* stock, HandoffEffects* out) {
  CHECK(state_ == State::kWaiting);
  stock->Promise(ticket_.promise_pages);
  state_ = State::kReceiving;
  const auto n_pages = static_cast<size_t>(ticket_.kv_pages);
  page_ids_.assign(n_pages, -1);
  here_.assign(n_pages * pool_->planes.size(), false);
  n_missing_ = static_cast<int64_t>(here_.size());
  OpenAgain(0, out);
}

void HandoffSink::OpenAgain(int64_t expected_wait_us, HandoffEffects* out) {
  if (state_ == State::kWaiting) return NoRoom(expected_wait_us, out);
  if (state_ != State::kReceiving) return;  // CANCEL is on its way
  out->messages.emplace_back(
      wire::Promise{.handoff = handoff(),
                    .chunk_bytes = static_cast<uint64_t>(limits_.chunk_bytes),
                    .window_bytes = static_cast<uint64_t>(limits_.window_bytes)});
}

HandoffSink::Decision HandoffSink::Check(const wire::ChunkHeader& header) const {
  using wire::NackReason;
  const auto refuse = [](NackReason reason) { return Decision{Verdict::kRefuse, reason}; };
  if (state_ != State::kReceiving) return refuse(NackReason::kUnknownTicket);
  const uint64_t plane_end = uint64_t{header.plane} + header.n_planes;
  const uint64_t page_end = uint64_t{header.first_page} + header.n_pages;
  if (header.n_planes == 0 || header.n_pages == 0 || plane_end > pool_->planes.size() ||
      page_end > page_ids_.size())
    return refuse(NackReason::kBadRange);
  const CellRect rect = RectOf(header);
  if (RectBytes(*pool_, rect) != header.length) return refuse(NackReason::kBadRange);
  if (header.length > limits_.chunk_bytes) return refuse(NackReason::kTooBig);

  int64_t n_here = 0;
  for (int32_t page = 0; page < rect.n_pages; ++page)
    for (int32_t plane = 0; plane < rect.n_planes; ++plane)
      n_here += here_[IndexOf(rect, page, plane)];
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

void HandoffSink::Claim(const wire::ChunkHeader& header, PageStock* stock) {
  DCHECK(Check(header).verdict == Verdict::kAccept);
  for (uint32_t page = 0; page < header.n_pages; ++page) {
    int32_t& id = page_ids_[header.first_page + page];
    if (id >= 0) continue;
    id = stock->Bind();
    ++n_bound_;
  }
  claims_.push_back(RectOf(header));
  claimed_bytes_ += header.length;
}

std::span<const int32_t> HandoffSink::PageIds(const wire::ChunkHeader& header) const {
  return std::span(page_ids_).subspan(header.first_page, header.n_pages);
}

void HandoffSink::Landed(const wire::ChunkHeader& header, Landing landing, int64_t now_us,
                         PageStock* stock, HandoffEffects* out) {
  const CellRect rect = RectOf(header);
  const auto claim = std::find(claims_.begin(), claims_.end(), rect);
  CHECK(claim != claims_.end());
  claims_.erase(claim);
  claimed_bytes_ -= header.length;
  if (state_ == State::kAborting) return FinishAbortIfQuiet(stock, out);
  CHECK(state_ == State::kReceiving);
  if (landing != Landing::kVerified) {
    if (landing == Landing::kDamaged)
      out->messages.emplace_back(wire::Nack{handoff(), header.chunk_seq, wire::NackReason::kCrc});
    return;
  }
  for (int32_t page = 0; page < rect.n_pages; ++page)
    for (int32_t plane = 0; plane < rect.n_planes; ++plane)
      here_[IndexOf(rect, page, plane)] = true;
  n_missing_ -= int64_t{header.n_pages} * header.n_planes;
  digest_ += wire::ChunkDigest(header.chunk_seq, header.payload_crc);
  if (!limits_.withhold_acks) out->messages.emplace_back(wire::Ack{handoff(), header.chunk_seq});
  CompleteIfAll(now_us, stock, out);
}

void HandoffSink::Handle(const wire::Done& done, int64_t now_us, PageStock* stock,
                         HandoffEffects* out) {
  if (state_ != State::kReceiving) return;
  done_ = done;
  CompleteIfAll(now_us, stock, out);
}

void HandoffSink::Handle(const wire::Commit& commit, int64_t now_us, PageStock* stock,
                         HandoffEffects* out) {
  if (state_ != State::kReceiving) return;
  commit_ = commit;
  CompleteIfAll(now_us, stock, out);
}

void HandoffSink::CompleteIfAll(int64_t now_us, PageStock* stock, HandoffEffects* out) {
  // Completing is an acknowledgement too.
  if (n_missing_ > 0 || !done_ || !commit_ || limits_.withhold_acks) return;
  if (done_->digest != digest_)
    return Abort(absl::DataLossError("the chunks that arrived are not those that were sent "
                                     "(digests differ)"),
                 Tell::kCancel, now_us, stock, out);
  CHECK(claims_.empty());  // every cell is here, so none can be claimed
  std::vector<int32_t> pages = std::move(page_ids_);
  for (int32_t left = ticket_.promise_pages - n_bound_; left > 0; --left)
    pages.push_back(stock->Bind());
  n_bound_ = 0;
  state_ = State::kComplete;
  out->messages.emplace_back(wire::Committed{handoff()});
  out->events.emplace_back(
      HandoffArrived{.ticket_id = ticket_.id,
                     .epoch = ticket_.epoch,
                     .request_id = ticket_.request_id,
                     .pages = std::move(pages),
                     .record = {.first_token = commit_->first_token, .n_tokens = commit_->n_tokens},
                     .transfer_us = now_us - opened_us_});
}

void HandoffSink::Abort(absl::Status status, Tell tell, int64_t now_us, PageStock* stock,
                        HandoffEffects* out) {
  if (tell == Tell::kCancelled) answer_cancel_ = true;
  if (state_ != State::kWaiting && state_ != State::kReceiving) return;
  status_ = std::move(status);
  if (tell == Tell::kCancel)
    out->messages.emplace_back(wire::Cancel{.handoff = handoff(),
                                            .code = static_cast<uint32_t>(status_.code()),
                                            .reason = std::string(status_.message())});
  if (state_ == State::kReceiving) stock->Release(ticket_.promise_pages - n_bound_);
  state_ = State::kAborting;
  aborting_us_ = now_us;
  FinishAbortIfQuiet(stock, out);
}

void HandoffSink::FinishAbortIfQuiet(PageStock* stock, HandoffEffects* out) {
  if (!claims_.empty()) return;
  state_ = State::kAborted;
  std::erase(page_ids_, -1);
  stock->Lend(page_ids_);
  page_ids_.clear();
  n_bound_ = 0;
  if (answer_cancel_)
    out->messages.emplace_back(wire::Cancelled{.handoff = handoff(),
                                               .code = static_cast<uint32_t>(status_.code()),
                                               .reason = std::string(status_.message())});
  out->events.emplace_back(HandoffAborted{.ticket_id = ticket_.id,
                                          .epoch = ticket_.epoch,
                                          .request_id = ticket_.request_id,
                                          .status = status_});
}

void HandoffSink::Tick(int64_t now_us, HandoffEffects* out) {
  if (state_ == State::kAborting && now_us - aborting_us_ >= kDrainTimeoutUs)
    out->close_connection = true;
}

size_t HandoffSink::IndexOf(const CellRect& rect, int32_t page, int32_t plane) const {
  return static_cast<size_t>(rect.first_page + page) * pool_->planes.size() +
         static_cast<size_t>(rect.plane + plane);
}

}  // namespace baton
