// An extension of Backend for schemes that are compared with the relay (`baton bench relay`): a
// rank of a zigzag ring meets keys in another order than theirs, a stage of a pipeline computes
// some of the layers. The CPU backends implement it beside Backend, and dynamic_cast<RivalSlices*>
// of a Backend finds it. Slices begin with Backend::BeginSlice, which here takes several pieces,
// too: a rank of a zigzag ring begins two. Nothing that serves requests uses this. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

class RivalSlices {
 public:
  virtual ~RivalSlices() = default;

  // Rows [from, to) meet the keys of [first_key, end_key) that they see: multiples of kSliceKeys,
  // in any order, each once in a layer. FinishSlice then takes the rows to have met all keys. The
  // fold has another order than that of steps, so the bits are others.
  virtual void AttendKeys(int layer, int from, int to, int first_key, int end_key) = 0;

  // The residual stream of rows [from, to): (rows, hidden) values of the backend's own type,
  // residual_bytes() a row. Read when a layer is finished; set before `layer`, which then is the
  // slice's first, for all its rows.
  virtual int64_t residual_bytes() const = 0;
  virtual void ReadResidual(int from, int to, std::span<std::byte> out) const = 0;
  virtual void SetResidual(int layer, int from, int to, std::span<const std::byte> in) = 0;
};

}  // namespace baton
