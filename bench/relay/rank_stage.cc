#include "bench/relay/rank_stage.h"

#include <algorithm>
#include <cstring>

#include "bench/synthetic_prompt.h"
#include "common/check.h"
#include "engine/step/step.h"

namespace baton {

int PagesOfResiduals(int64_t tokens, int64_t residual_bytes, int64_t page_bytes) {
  return static_cast<int>((tokens * residual_bytes + page_bytes - 1) / page_bytes);
}

RankStage::RankStage(RankParts& parts, const RankRun& run, std::span<const int32_t> pages,
                     RankInflows& inflows)
    : parts_(parts),
      run_(run),
      pages_(pages),
      inflows_(inflows),
      n_layers_(parts.backend->model().n_layers),
      residual_bytes_(parts.rivals == nullptr ? 0 : parts.rivals->residual_bytes()) {
  BATON_CHECK(run.in.size() <= 1 && run.out.size() <= 1);
}

absl::Status RankStage::CheckBackend() const {
  if (residual_bytes_ == 0)
    return absl::UnimplementedError("this engine cannot compute some of its layers");
  const KvLayout& layout = parts_.pool->layout();
  for (const KvPlane& plane : layout.planes) {
    if (plane.bytes * layout.n_layers() != layout.page_bytes)
      return absl::UnimplementedError("bench relay: a pipeline needs layers of the same width");
  }
  return absl::OkStatus();
}

absl::Status RankStage::Compute() {
  RETURN_IF_ERROR(CheckBackend());
  Backend& backend = *parts_.backend;
  const std::vector<int32_t> prompt = MadeUpPrompt(run_.tokens, run_.seed, backend.model().vocab);
  StepBuilder step;
  int begin = 0;
  for (const int rows : run_.chunks) {
    const int end = begin + rows;
    const bool is_end = end == run_.tokens && run_.end_layer == n_layers_;
    step.Clear();
    step.AddPiece(std::span(prompt).subspan(begin, rows), begin,
                  pages_.first(parts_.pool->layout().PagesFor(end)),
                  backend.model().rope.RangeOf(run_.tokens));
    if (is_end) step.WantLogits(rows - 1);
    backend.BeginSlice(step.batch());
    if (!run_.in.empty()) RETURN_IF_ERROR(TakeResiduals(begin, rows));
    for (int layer = run_.first_layer; layer < run_.end_layer; ++layer)
      ComputeLayer(layer, rows, is_end);
    if (!run_.out.empty()) GiveResiduals(begin, rows);
    begin = end;
  }
  if (!run_.out.empty()) SendCellsTo(int64_t{run_.out[0].n_pages} * n_layers_);
  return absl::OkStatus();
}

void RankStage::ComputeLayer(int layer, int rows, bool is_end) {
  Backend& backend = *parts_.backend;
  const int part = parts_.start.engine.limits.max_step_tokens;
  for (int from = 0; from < rows; from += part)
    backend.ProjectSlice(layer, from, std::min(from + part, rows));
  // The output of the last layer is used only for the prompt's last row.
  const bool is_last = layer + 1 == n_layers_;
  if (is_last && !is_end) return;
  for (int from = is_last ? rows - 1 : 0; from < rows; from += part)
    backend.FinishSlice(layer, from, std::min(from + part, rows));
}

std::byte* RankStage::CellOf(const RankLink& link, int64_t cell) const {
  const auto plane = static_cast<int>(cell / link.n_pages);
  const auto place = static_cast<size_t>(link.first_page + cell % link.n_pages);
  return parts_.pool->plane(pages_[place], plane);
}

// Copies between the buffer and the stream's bytes from `offset` on.
void RankStage::Copy(const RankLink& link, int64_t offset, bool to_pages) {
  for (size_t done = 0; done < buffer_.size();) {
    const int64_t at = offset + static_cast<int64_t>(done);
    const size_t n =
        std::min(static_cast<size_t>(cell_bytes() - at % cell_bytes()), buffer_.size() - done);
    std::byte* cell = CellOf(link, at / cell_bytes()) + at % cell_bytes();
    std::memcpy(to_pages ? cell : &buffer_[done], to_pages ? &buffer_[done] : cell, n);
    done += n;
  }
}

absl::Status RankStage::TakeResiduals(int begin, int rows) {
  const int64_t offset = begin * residual_bytes_, end = offset + rows * residual_bytes_;
  RETURN_IF_ERROR(inflows_.AwaitCells((end + cell_bytes() - 1) / cell_bytes()));
  buffer_.resize(static_cast<size_t>(end - offset));
  Copy(run_.in[0], offset, false);
  const int part = parts_.start.engine.limits.max_step_tokens;
  for (int from = 0; from < rows; from += part) {
    const int to = std::min(from + part, rows);
    parts_.rivals->SetResidual(
        run_.first_layer, from, to,
        std::span(buffer_).subspan(from * residual_bytes_, (to - from) * residual_bytes_));
  }
  return absl::OkStatus();
}

void RankStage::GiveResiduals(int begin, int rows) {
  const int64_t offset = begin * residual_bytes_, end = offset + rows * residual_bytes_;
  buffer_.resize(static_cast<size_t>(end - offset));
  const int part = parts_.start.engine.limits.max_step_tokens;
  for (int from = 0; from < rows; from += part) {
    const int to = std::min(from + part, rows);
    parts_.rivals->ReadResidual(
        from, to,
        std::span(buffer_).subspan(from * residual_bytes_, (to - from) * residual_bytes_));
  }
  Copy(run_.out[0], offset, true);
  SendCellsTo(end / cell_bytes());
}

// Sends the cells before `end`, which are full.
void RankStage::SendCellsTo(int64_t end) {
  const RankLink& link = run_.out[0];
  while (sent_cells_ < end) {
    const int64_t plane = sent_cells_ / link.n_pages, first = sent_cells_ % link.n_pages;
    const int64_t n = std::min(link.n_pages - first, end - sent_cells_);
    const auto pages =
        pages_.subspan(static_cast<size_t>(link.first_page + first), static_cast<size_t>(n));
    parts_.transfer->Post(SendCells{.ticket_id = TicketOf(link),
                                    .plane = static_cast<int32_t>(plane),
                                    .first_page = static_cast<int32_t>(first),
                                    .pages = {pages.begin(), pages.end()}});
    sent_cells_ += n;
  }
}

}  // namespace baton
