// Where the sums of a register tile are stored between its K blocks. For kernel units.
#pragma once

#include <cstdint>

namespace baton {
namespace {

alignas(64) constexpr float kNothing[16] = {};

// Accumulators of a tile's rows, `stride` apart. `start`: they hold nothing yet and sums begin with
// +0, so that no caller has to clear them.
struct TileSums {
  float* sums;
  int64_t stride;
  bool start;
};

}  // namespace
}  // namespace baton
