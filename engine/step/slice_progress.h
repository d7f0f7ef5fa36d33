// Tracks the progress of a backend's slice. CHECKs that the parts come in the order that Backend
// prescribes. Engine thread.
#pragma once

#include "common/check.h"

namespace baton {

class SliceProgress {
 public:
  // rows: rows of the slice. max_rows: largest part.
  void Begin(int n_layers, int rows, int max_rows, bool wants_logits) {
    *this = SliceProgress{};
    n_layers_ = n_layers;
    rows_ = rows;
    max_rows_ = max_rows;
    wants_logits_ = wants_logits;
  }
  // Makes `layer` the slice's first layer instead of 0.
  void StartAt(int layer) {
    BATON_CHECK(projected_ == 0 && finished_ == 0 && (layer_ == 0 || layer_ == layer));
    layer_ = layer;
  }
  void Project(int layer, int from, int to) {
    CheckRows(from, to);
    if (projected_ == rows_ && finished_ == rows_) {
      ++layer_;
      projected_ = finished_ = 0;
    }
    BATON_CHECK(layer == layer_ && layer < n_layers_);
    projected_ += to - from;
    BATON_CHECK(projected_ <= rows_);
  }
  void Attend(int layer, int from, int to) const {
    CheckRows(from, to);
    BATON_CHECK(layer == layer_ && projected_ == rows_);
  }
  void Finish(int layer, int from, int to) {
    Attend(layer, from, to);
    finished_ += to - from;
    BATON_CHECK(finished_ <= rows_);
    has_logits_ |= layer == n_layers_ - 1 && to == rows_ && wants_logits_;
  }
  // True if the last row of a layer's rows [from, to) is the one whose logits are wanted.
  bool IsLogitRow(int to) const { return wants_logits_ && to == rows_; }
  bool has_logits() const { return has_logits_; }

  void CheckRows(int from, int to) const {
    BATON_CHECK(0 <= from && from < to && to <= rows_ && to - from <= max_rows_);
  }

 private:
  int n_layers_ = 0, rows_ = 0, max_rows_ = 0;
  bool wants_logits_ = false, has_logits_ = false;
  int layer_ = 0, projected_ = 0, finished_ = 0;  // rows of this layer
};

}  // namespace baton
