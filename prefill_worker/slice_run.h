// What a rank of a relay computes next of its slice: layer by layer over all of it, in blocks of
// rows that are the caller's to size, so that steps run between them. It knows no engine and no
// page.
//
// Of a layer all rows are projected, for their KV is what the next rank waits for; then they are
// finished, once the KV of the tokens before the slice (the inflow) is there in that layer. While
// it is still arriving, rows meet the keys of the segments that are there, in ascending order
// ("streaming"; that of KV-Runahead waits for all of them). Nobody reads what the last layer gives,
// but for the last row of a slice that wants logits: the others are only projected.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace baton {

// How much of a rank's inflow is there: planes [0, planes) of all its pages, and of the next plane
// pages [0, pages).
struct InflowProgress {
  int planes = 0, pages = 0;
  bool has_begun() const { return planes > 0 || pages > 0; }
  auto operator<=>(const InflowProgress&) const = default;
};

struct SliceBlock {
  enum class Kind { kProject, kAttend, kFinish };
  Kind kind = Kind::kProject;
  int layer = 0, from = 0, to = 0;  // rows [from, to)
  int end_key = 0;                  // of kAttend: the keys before it are met
  bool is_first() const { return layer == 0 && from == 0 && kind == Kind::kProject; }
  bool operator==(const SliceBlock&) const = default;
};

class SliceRun {
 public:
  struct Shape {
    int n_layers = 0, n_rows = 0;
    bool wants_logits = false;  // of its last row
    int inflow_pages = 0, page_tokens = 0;
    int segment_keys = 0;  // streaming: rows meet whole segments of so many keys; 0: off
  };
  explicit SliceRun(const Shape& shape);

  // The next block, of at most max_rows rows: as few blocks as that allows, of equally many rows.
  // None: it is done, or waits for its inflow.
  std::optional<SliceBlock> Next(int max_rows, const InflowProgress& inflow) const;
  // The block that Next gave was computed. True: a layer ends with it.
  bool Computed(const SliceBlock& block);

  bool done() const { return layer_ == shape_.n_layers; }
  int n_rows() const { return shape_.n_rows; }
  int projected_layers() const;  // with all rows
  int projected_rows() const;    // of the layer after these
  int remaining() const;         // rows that the layers to come are worth

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
  int attended_rows_ = 0,
      met_keys_ = 0;  // rows [.., attended_rows_) have met these keys; the others fewer
};

}  // namespace baton
