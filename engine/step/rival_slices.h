// Operations on slices that only the schemes compared with the relay (`baton bench relay`) need
// beyond Backend: a ring attends keys in another order, a pipeline computes a subset of the layers.
// Both begin their slices with Backend::BeginSlice; a rank of a zigzag ring begins one of two
// pieces. Not used when serving requests. Engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

class RivalSlices {
 public:
  virtual ~RivalSlices() = default;

  // Rows [from, to) attend the visible keys of [first_key, end_key), both multiples of kSliceKeys,
  // in any order, each key once per layer. FinishSlice then assumes that all keys are attended. The
  // fold has another order than in steps, so the bits differ.
  virtual void AttendKeys(int layer, int from, int to, int first_key, int end_key) = 0;

  // The residual stream: residual_bytes() per row, row after row. ReadResidual is valid when a
  // layer is finished. SetResidual comes before `layer`, which becomes the slice's first layer, for
  // all its rows.
  virtual int64_t residual_bytes() const = 0;
  virtual void ReadResidual(int from, int to, std::span<std::byte> out) const = 0;
  virtual void SetResidual(int layer, int from, int to, std::span<const std::byte> in) = 0;
};

}  // namespace baton
