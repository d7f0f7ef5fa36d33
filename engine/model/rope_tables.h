// All RoPE tables of a model: for layers with and without a window, if they differ, and for both
// ranges of longrope. Computed when the model is loaded, read-only afterwards: any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_desc.h"
#include "engine/model/rope.h"

namespace baton {

class RopeTables {
 public:
  RopeTables() = default;
  // Computes the tables for positions [0, n_positions); the short range of longrope ends at its own
  // limit.
  RopeTables(const ModelDesc& model, int n_positions);

  // cos and sin of one position, (rotary_dim / 2) each, in the tables.
  struct Angles {
    const float *cos, *sin;
  };
  // CHECKs that the position is in the table of this range.
  Angles At(int layer, RopeRange range, int position) const;
  uint64_t Digest() const;  // hash of all tables

 private:
  struct Ranges {
    RopeTable near, far;  // far: longrope only
    bool has_far = false;
  };
  static Ranges RangesOf(const RopeDesc& rope, int rotary_dim, int n_positions);

  int64_t n_pairs_ = 0;
  Ranges tables_[2];  // index 0: most layers; 1: layers with a window, if they have their own
  std::vector<uint8_t> table_of_;  // (n_layers) index into tables_
};

}  // namespace baton
