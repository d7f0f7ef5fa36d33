// Every RoPE table of a model: of its layers with and without a window, where they differ, and of
// both ranges of longrope. Made when the model is loaded, only read then.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_desc.h"
#include "engine/model/rope.h"

namespace baton {

class RopeTables {
 public:
  RopeTables() = default;
  // Of positions [0, n_positions); sequences of the short range have no position beyond theirs.
  RopeTables(const ModelDesc& model, int n_positions);

  // Of one position, rotary_dim / 2 each.
  struct Angles {
    const float *cos, *sin;
  };
  Angles At(int layer, RopeRange range, int position) const;
  uint64_t Digest() const;  // of all tables

 private:
  struct Ranges {
    RopeTable near, far;  // far: of longrope only
    bool has_far = false;
  };
  static Ranges RangesOf(const RopeDesc& rope, int rotary_dim, int n_positions);

  int64_t n_pairs_ = 0;
  Ranges tables_[2];  // of most layers; of those with a window, where they have their own
  std::vector<uint8_t> table_of_;  // (n_layers)
};

}  // namespace baton
