// A stage of a pipeline, for comparison with the relay (`baton bench relay`): some of the layers,
// for all tokens of a prompt, chunk by chunk. The residual stream of a chunk comes from the
// previous stage and goes on to the next. It travels by handoffs of cells as KV does: the stream of
// the whole prompt is one row of bytes, cut into cells in the order of sending (plane by plane, all
// pages of each). Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/relay/rank_inflows.h"
#include "bench/relay/rank_orders.h"
#include "bench/relay/rank_parts.h"

namespace baton {

// Returns the pages that hold the residual stream of `tokens` tokens.
int PagesOfResiduals(int64_t tokens, int64_t residual_bytes, int64_t page_bytes);

class RankStage {
 public:
  // pages: the prompt's, then those of the links of `run` (at most one in and one out). All
  // references outlive the object.
  RankStage(RankParts& parts, const RankRun& run, std::span<const int32_t> pages,
            RankInflows& inflows);

  // Error: this engine has no stages, or the previous stage does not send.
  absl::Status Compute();

 private:
  int64_t cell_bytes() const { return parts_.pool->layout().planes[0].bytes; }
  std::byte* CellOf(const RankLink& link, int64_t cell) const;
  void Copy(const RankLink& link, int64_t offset, bool to_pages);
  absl::Status CheckBackend() const;
  absl::Status TakeResiduals(int begin, int rows);
  void GiveResiduals(int begin, int rows);
  void SendCellsTo(int64_t end);
  void ComputeLayer(int layer, int rows, bool is_end);

  RankParts& parts_;
  const RankRun& run_;
  const std::span<const int32_t> pages_;
  RankInflows& inflows_;
  const int n_layers_;
  const int64_t residual_bytes_;   // per token
  std::vector<std::byte> buffer_;  // the stream of a chunk
  int64_t sent_cells_ = 0;
};

}  // namespace baton
