// Where the sums of a register tile lie between its K blocks. For kernel units.
#pragma once

#include <cstdint>

namespace baton {
namespace {

constexpr int64_t kMostTileOutputs = 256;
alignas(64) constexpr float kNothing[kMostTileOutputs] = {};

// Accumulators of a tile's rows, `stride` apart. `start`: they hold nothing yet, and sums begin
// with +0; so nobody has to clear them.
struct TileSums {
  float* sums;
  int64_t stride;
  bool start;

  const float* Before() const { return start ? kNothing : sums; }
  int64_t BeforeStride() const { return start ? 0 : stride; }
};

}  // namespace
}  // namespace baton
