#include "prefill_worker/slice_run.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// Rows of a block come in multiples of this, where they are that many: whole tiles of every kernel.
constexpr int kBlockRows = 32;

}  // namespace

SliceRun::SliceRun(const Shape& shape) : shape_(shape) {
  BATON_CHECK(shape.n_layers > 0 && shape.n_rows > 0 && shape.segment_keys >= 0);
  attended_rows_ = shape.n_rows;
  finished_ = first_row();
}

std::optional<SliceBlock> SliceRun::Next(int max_rows, const InflowProgress& inflow) const {
  BATON_CHECK(max_rows > 0);
  if (done()) return std::nullopt;
  const auto block = [&](SliceBlock::Kind kind, int from) {
    return SliceBlock{kind, layer_, from, EndOfBlock(from, max_rows), 0};
  };
  if (projected_ < shape_.n_rows) return block(SliceBlock::Kind::kProject, projected_);
  if (IsThere(inflow)) return block(SliceBlock::Kind::kFinish, finished_);
  return NextAttendBlock(max_rows, inflow);
}

// The rows left are cut evenly: a last block of few rows would read all weights of the layer for
// little work.
int SliceRun::EndOfBlock(int from, int max_rows) const {
  const int left = shape_.n_rows - from;
  const int n_blocks = (left + max_rows - 1) / max_rows;
  const int rows = (left + n_blocks - 1) / n_blocks;
  const int whole = (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
  return from + std::min({whole, max_rows, left});
}

bool SliceRun::IsThere(const InflowProgress& inflow) const {
  return shape_.inflow_pages == 0 || inflow.planes > layer_;
}

std::optional<SliceBlock> SliceRun::NextAttendBlock(int max_rows,
                                                    const InflowProgress& inflow) const {
  if (shape_.segment_keys == 0 || inflow.planes < layer_) return std::nullopt;
  int from = attended_rows_, keys = met_keys_;
  if (from == shape_.n_rows) {
    const int there = inflow.pages * shape_.page_tokens;
    from = first_row();
    keys = there / shape_.segment_keys * shape_.segment_keys;
    if (keys == met_keys_) return std::nullopt;
  }
  return SliceBlock{SliceBlock::Kind::kAttend, layer_, from, EndOfBlock(from, max_rows), keys};
}

bool SliceRun::Computed(const SliceBlock& block) {
  BATON_CHECK(block.layer == layer_);
  switch (block.kind) {
    case SliceBlock::Kind::kProject:
      projected_ = block.to;
      if (projected_ < shape_.n_rows || !is_last_layer() || shape_.wants_logits) return false;
      break;
    case SliceBlock::Kind::kAttend:
      attended_rows_ = block.to;
      met_keys_ = block.end_key;
      return false;
    case SliceBlock::Kind::kFinish:
      finished_ = block.to;
      if (finished_ < shape_.n_rows) return false;
      break;
  }
  NextLayer();
  return true;
}

void SliceRun::NextLayer() {
  ++layer_;
  projected_ = 0;
  finished_ = first_row();
  attended_rows_ = shape_.n_rows;
  met_keys_ = 0;
}

int SliceRun::projected_layers() const { return layer_ + (projected_ == shape_.n_rows ? 1 : 0); }

int SliceRun::projected_rows() const { return projected_ == shape_.n_rows ? 0 : projected_; }

int SliceRun::remaining() const {
  const auto left = static_cast<int64_t>(shape_.n_layers - layer_);
  return static_cast<int>((left * shape_.n_rows + shape_.n_layers - 1) / shape_.n_layers);
}

}  // namespace baton
