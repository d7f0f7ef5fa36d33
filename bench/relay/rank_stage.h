// A stage of a pipeline: some of the layers, for all tokens of a prompt, chunk by chunk; the
// residual stream of a chunk comes from the stage before and goes on to the next one. A rival of
// the relay, for comparisons (`baton bench relay`). It travels as KV does, by handoffs of cells:
// the stream of the whole prompt is one row of bytes, and the cells of a handoff are that row in
// the order in which they are sent, plane by plane, of each all pages. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/relay/rank_inflows.h"
#include "bench/relay/rank_orders.h"
#include "bench/relay/rank_parts.h"

namespace baton {

// Pages that hold the residual stream of so many tokens.
int PagesOfResiduals(int64_t tokens, int64_t residual_bytes, int64_t page_bytes);

class RankStage {
 public:
  // pages: the prompt's, then those of the links of run, which are one in and one out at most.
  // All outlive it.
  RankStage(RankParts& parts, const RankRun& run, std::span<const int32_t> pages,
            RankInflows& inflows);

  // Error: this engine has no stages, or the stage before does not send.
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
  const int64_t residual_bytes_;   // of a token
  std::vector<std::byte> buffer_;  // of a chunk's stream
  int64_t sent_cells_ = 0;
};

}  // namespace baton
