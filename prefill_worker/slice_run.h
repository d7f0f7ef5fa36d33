// Decides what a rank of a relay computes next in its slice: layer by layer over the whole slice,
// in blocks of rows whose size the caller chooses, so that steps run between blocks. Knows no
// engine and no page. Engine thread.
//
// In each layer all rows are projected first, since the next rank waits for their KV; then they are
// finished, once the layer's KV of the tokens before the slice (the inflow) is here. While the
// inflow arrives, rows attend to the segments of keys that are here, in ascending order
// ("streaming"; KV-Runahead waits for the whole layer). The last layer's output is read only for
// the last row of a slice that wants logits: its other rows are only projected. docs/RELAY.md, a
// slice, has the reasons.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace baton {

// Received part of a rank's inflow: planes [0, planes) of all pages, and pages [0, pages) of the
// next plane.
struct InflowProgress {
  int planes = 0, pages = 0;
  bool has_begun() const { return planes > 0 || pages > 0; }
  auto operator<=>(const InflowProgress&) const = default;
};

struct SliceBlock {
  enum class Kind {
    kProject,  // queries, keys and values of the rows
    kAttend,   // to keys of the inflow that are here
    kFinish    // the rest of the attention, and of the layer
  };
  Kind kind = Kind::kProject;
  int layer = 0, from = 0, to = 0;  // rows [from, to)
  int end_key = 0;                  // kAttend: rows attend to the keys before it
  bool is_first() const { return layer == 0 && from == 0 && kind == Kind::kProject; }
  bool operator==(const SliceBlock&) const = default;
};

class SliceRun {
 public:
  struct Shape {
    int n_layers = 0, n_rows = 0;  // at least 1 each; a row is a token of the slice
    bool wants_logits = false;     // the last row's
    int inflow_pages = 0, page_tokens = 0;
    int segment_keys = 0;  // of a segment, when rows attend while the inflow arrives; 0: never
  };
  explicit SliceRun(const Shape& shape);

  // The next block, of at most max_rows rows: the fewest blocks possible, of equal size. Empty:
  // the slice is done, or waits for its inflow.
  std::optional<SliceBlock> Next(int max_rows, const InflowProgress& inflow) const;
  // Called when the block from Next was computed. True: the block ends a layer.
  bool Computed(const SliceBlock& block);

  bool done() const { return layer_ == shape_.n_layers; }
  int n_rows() const { return shape_.n_rows; }
  int projected_layers() const;  // layers with all rows projected
  int projected_rows() const;    // rows projected in the next layer
  int remaining() const;         // tokens: n_rows * layers to go / n_layers

 private:
  bool is_last_layer() const { return layer_ + 1 == shape_.n_layers; }
  // The first row that is attended and finished in this layer.
  int first_row() const { return is_last_layer() ? shape_.n_rows - 1 : 0; }
  int EndOfBlock(int from, int max_rows) const;
  bool IsThere(const InflowProgress& inflow) const;
  std::optional<SliceBlock> NextAttendBlock(int max_rows, const InflowProgress& inflow) const;
  void NextLayer();

  const Shape shape_;
  int layer_ = 0;
  // Rows of this layer.
  int projected_ = 0, finished_ = 0;
  // Rows below attended_rows_ have met the first met_keys_ keys; the others have met fewer.
  int attended_rows_ = 0, met_keys_ = 0;
};

}  // namespace baton
