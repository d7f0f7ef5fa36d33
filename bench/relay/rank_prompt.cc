#include "bench/relay/rank_prompt.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "bench/median.h"
#include "bench/relay/rank_stage.h"
#include "bench/synthetic_prompt.h"
#include "common/check.h"

namespace baton {
namespace {

// Returns the peak of anonymous and shared resident memory; pages of files, such as weights, do not
// count.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  int64_t peak = 0, file = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) peak = std::atoll(line.c_str() + 6);
    if (line.rfind("RssFile:", 0) == 0) file = std::atoll(line.c_str() + 8);
  }
  return (peak - file) * 1024;
}

}  // namespace

RankPrompt::RankPrompt(RankParts& parts, const RankRun& run)
    : parts_(parts),
      run_(run),
      n_layers_(parts.backend->model().n_layers),
      page_tokens_(parts.pool->layout().page_tokens),
      part_tokens_(parts.start.engine.limits.max_step_tokens),
      pieces_(PiecesOf(run)),
      inflows_(run.in, run.out, n_layers_, [this](int plane, int first, int n) {
        if (run_.cuts_through) Send(plane, first, n);
      }) {}

std::vector<RankPrompt::Range> RankPrompt::RangesOf(const std::vector<int>& ends) {
  std::vector<Range> ranges;
  for (size_t i = 0; i + 1 < ends.size(); i += 2) ranges.push_back({ends[i], ends[i + 1]});
  return ranges;
}

std::vector<RankPrompt::Range> RankPrompt::PiecesOf(const RankRun& run) {
  return run.pieces.empty() ? std::vector<Range>{{run.begin, run.end}} : RangesOf(run.pieces);
}

int RankPrompt::rows() const {
  int n = 0;
  for (const Range& piece : pieces_) n += piece.end - piece.begin;
  return n;
}

absl::Status RankPrompt::Prepare() {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peaks
  int n_pages = parts_.pool->layout().PagesFor(run_.end);
  for (const auto* links : {&run_.in, &run_.out}) {
    for (const RankLink& link : *links) n_pages = std::max(n_pages, link.first_page + link.n_pages);
  }
  if (parts_.pool->Take(n_pages, &pages_)) return absl::OkStatus();
  return absl::ResourceExhaustedError("a rank's pool is smaller than the prompt");
}

absl::StatusOr<RankDone> RankPrompt::Run() {
  const uint64_t sent = parts_.transfer->counters().bytes_sent;
  for (const RankLink& link : run_.out) Open(link);
  // Inflows come only after their await, so every cell to pass on finds its handoff open.
  for (const RankLink& link : run_.in) {
    parts_.transfer->Post(AwaitInflow{TicketOf(link), 1, Pages(link.first_page, link.n_pages)});
  }
  RankDone done;
  if (run_.end > run_.begin) {
    RETURN_IF_ERROR(Compute());
    done.computed = MonotonicSeconds();
    if (has_logits()) {
      const std::span<const float> logits = Logits();
      done.digest = absl::StrFormat("%016x", LogitsDigest(logits, 0));
      if (run_.wants_logits) done.logits.assign(logits.begin(), logits.end());
    }
  }
  done.waited = inflows_.waited();
  // A head may be done before the cells that it only passes on have arrived.
  RETURN_IF_ERROR(inflows_.AwaitPlane(n_layers_ - 1));
  for (const RankLink& link : run_.out) {
    parts_.transfer->Post(CommitHandoff{TicketOf(link), {.n_tokens = run_.tokens}});
  }
  RETURN_IF_ERROR(inflows_.AwaitEnd(&done.arrived));
  DescribeLayers(&done);
  done.bytes_sent = static_cast<int64_t>(parts_.transfer->counters().bytes_sent - sent);
  done.kv_bytes = static_cast<int64_t>(pages_.size()) * parts_.pool->layout().page_bytes;
  done.peak_memory = PeakMemory();
  parts_.pool->Give(pages_);
  return done;
}

absl::Status RankPrompt::Compute() {
  if (!run_.chunks.empty()) return RankStage(parts_, run_, pages_, inflows_).Compute();
  if (!run_.by_steps) return ComputeSlice();
  ComputeBySteps();
  return absl::OkStatus();
}

std::vector<int32_t> RankPrompt::Pages(int first, int n) const {
  return {pages_.begin() + first, pages_.begin() + first + n};
}

void RankPrompt::Open(const RankLink& link) {
  Ticket ticket{.id = TicketOf(link),
                .epoch = 1,
                .request_id = link.ticket,
                .source = parts_.start.incarnation,
                .sink = link.sink,
                .promise = TicketOf(link),
                .kv_pages = link.n_pages,
                .n_pages = link.n_pages,
                .expires_us = INT64_MAX};
  SignTicket(ClusterKey{}, ticket);
  parts_.transfer->Post(OpenHandoff{ticket, link.sink, link.address});
}

// Sends pages [first, first + n) of a plane, which are final here, to their receivers. Either
// thread.
void RankPrompt::Send(int plane, int first, int n) {
  for (const RankLink& link : run_.out) {
    const int from = std::max(first, link.first_page);
    const int to = std::min(first + n, link.first_page + link.n_pages);
    if (from >= to) continue;
    parts_.transfer->Post(SendCells{.ticket_id = TicketOf(link),
                                    .plane = plane,
                                    .first_page = from - link.first_page,
                                    .pages = Pages(from, to - from)});
  }
}

// Sends the pages that end with this block; a partial last page waits for the next block. Pages of
// several pieces are sent when all pieces are projected.
void RankPrompt::SendProjected(const SliceBlock& block) {
  const auto page_of = [&](int row) { return (run_.begin + row) / page_tokens_; };
  const KvLayout& layout = parts_.pool->layout();
  const bool is_end = block.to == rows();
  if (pieces_.size() == 1) {
    const int from = page_of(block.from);
    return Send(block.layer, from, (is_end ? layout.PagesFor(run_.end) : page_of(block.to)) - from);
  }
  if (!is_end) return;
  for (const Range& piece : pieces_) {
    const int from = piece.begin / page_tokens_;
    Send(block.layer, from, layout.PagesFor(piece.end) - from);
  }
}

// Sends of each plane all pages up to the slice's end at once.
void RankPrompt::SendPrefixes(const SliceRun& run) {
  const int there = run_.in.empty() ? n_layers_ : std::min(n_layers_, inflows_.progress().planes);
  for (; sent_planes_ < std::min(run.projected_layers(), there); ++sent_planes_)
    Send(sent_planes_, 0, parts_.pool->layout().PagesFor(run_.end));
}

absl::Status RankPrompt::ComputeSlice() {
  Backend& backend = *parts_.backend;
  if (!run_.key_ranges.empty() && parts_.rivals == nullptr)
    return absl::UnimplementedError("this engine meets keys in their order only");
  const std::vector<int32_t> prompt = MadeUpPrompt(run_.tokens, run_.seed, backend.model().vocab);
  step_.Clear();
  for (const Range& piece : pieces_) {
    step_.AddPiece(std::span(prompt).subspan(piece.begin, piece.end - piece.begin), piece.begin,
                   pages_, backend.model().rope.RangeOf(run_.tokens));
  }
  if (is_tail()) step_.WantLogits(rows() - 1);
  backend.BeginSlice(step_.batch());
  int inflow_pages = 0;  // ranks with keys in rotation wait for these pages there
  if (run_.key_ranges.empty()) {
    for (const RankLink& link : run_.in) inflow_pages += link.n_pages;
  }
  SliceRun run({.n_layers = n_layers_,
                .n_rows = rows(),
                .wants_logits = is_tail(),
                .inflow_pages = inflow_pages,
                .page_tokens = page_tokens_,
                .segment_keys = run_.streams ? kSliceKeys : 0});
  RETURN_IF_ERROR(ComputeBlocks(run));
  if (run_.cuts_through) return absl::OkStatus();
  RETURN_IF_ERROR(inflows_.AwaitPlane(n_layers_ - 1));
  SendPrefixes(run);
  return absl::OkStatus();
}

absl::Status RankPrompt::ComputeBlocks(SliceRun& run) {
  using Kind = SliceBlock::Kind;
  double layer_begin = MonotonicSeconds();
  int rotated = 0;  // layers
  while (!run.done()) {
    const InflowProgress there = inflows_.progress();
    if (!run_.cuts_through) SendPrefixes(run);
    const std::optional<SliceBlock> block = run.Next(part_tokens_, there);
    if (!block) {
      RETURN_IF_ERROR(inflows_.AwaitMore(there));
      continue;
    }
    if (block->kind == Kind::kFinish && !run_.key_ranges.empty() && rotated == block->layer) {
      RETURN_IF_ERROR(AttendInRotation(block->layer));
      ++rotated;
    }
    const double start = MonotonicSeconds();
    ComputeBlock(*block);
    const double end = MonotonicSeconds();
    const bool is_last = block->layer + 1 == n_layers_;
    if (block->kind == Kind::kProject && !is_last) projections_ += end - start;
    if (run.Computed(*block) && !is_last)
      layer_seconds_.push_back(end - std::exchange(layer_begin, end));
    if (block->kind == Kind::kProject && run_.cuts_through) SendProjected(*block);
  }
  return absl::OkStatus();
}

void RankPrompt::ComputeBlock(const SliceBlock& block) {
  Backend& backend = *parts_.backend;
  switch (block.kind) {
    case SliceBlock::Kind::kProject:
      return backend.ProjectSlice(block.layer, block.from, block.to);
    case SliceBlock::Kind::kAttend:
      return backend.AttendSlice(block.layer, block.from, block.to, block.end_key);
    case SliceBlock::Kind::kFinish:
      return backend.FinishSlice(block.layer, block.from, block.to);
  }
}

// Attends to the keys of each owner as they come around the ring.
absl::Status RankPrompt::AttendInRotation(int layer) {
  RivalSlices& rivals = *parts_.rivals;
  const bool is_last = layer + 1 == n_layers_;
  for (const Range& keys : RangesOf(run_.key_ranges)) {
    const int first = keys.begin / page_tokens_;
    RETURN_IF_ERROR(inflows_.AwaitPages(layer, first, keys.end / page_tokens_ - first));
    for (int from = is_last ? rows() - 1 : 0; from < rows(); from += part_tokens_) {
      rivals.AttendKeys(layer, from, std::min(from + part_tokens_, rows()), keys.begin, keys.end);
    }
  }
  return absl::OkStatus();
}

// Computes the prompt in steps, as a worker without relay does.
void RankPrompt::ComputeBySteps() {
  Backend& backend = *parts_.backend;
  const std::vector<int32_t> prompt = MadeUpPrompt(run_.tokens, run_.seed, backend.model().vocab);
  for (int begin = 0; begin < run_.tokens; begin += part_tokens_) {
    const int n = std::min(part_tokens_, run_.tokens - begin);
    step_.Clear();
    step_.AddPiece(std::span(prompt).subspan(begin, n), begin, pages_,
                   backend.model().rope.RangeOf(run_.tokens));
    if (begin + n == run_.tokens) step_.WantLogits(n - 1);
    backend.Begin(step_.batch());
    for (int layer = 0; layer < n_layers_; ++layer) {
      backend.RunLayers(layer, layer + 1);
      Send(layer, begin / page_tokens_, (n + page_tokens_ - 1) / page_tokens_);
    }
  }
}

void RankPrompt::DescribeLayers(RankDone* done) {
  done->projections = projections_;
  if (layer_seconds_.empty()) return;
  done->layers = std::accumulate(layer_seconds_.begin(), layer_seconds_.end(), 0.0);
  done->median_layer = MedianOf(layer_seconds_);
}

std::span<const float> RankPrompt::Logits() const {
  const Backend& backend = *parts_.backend;
  return run_.by_steps ? backend.logits(0) : backend.slice_logits();
}

}  // namespace baton
