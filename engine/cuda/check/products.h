// Products of the check: inputs on the GPU, the kernels by name, and comparisons of whole outputs.
#pragma once

#include <string>
#include <vector>

#include "engine/cuda/check/check_kernels.h"
#include "engine/cuda/check/gpu.h"
#include "engine/cuda/gemm.h"

namespace baton {

// A GEMM kernel: the reference, the one for few rows, or wgmma with a tile of so many columns.
struct Kernel {
  int tile_n = 0;  // 0: mma.sync; kFewRows
};
inline constexpr int kFewRows = -1;
inline constexpr Kernel kReference{0};
inline constexpr Kernel kKernels[] = {kReference, {kFewRows}, {8}, {64}, {128}, {256}};

inline std::string NameOf(Kernel kernel) {
  if (kernel.tile_n == kFewRows) return "few rows";
  return kernel.tile_n == 0 ? "mma.sync" : "wgmma n" + std::to_string(kernel.tile_n);
}

// The spelled-out shape "m x n x k".
inline std::string NameOf(GemmShape shape) {
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
         std::to_string(shape.k);
}

inline GpuArray<uint16_t> Inputs(const InputMatrix& matrix, const Stream& stream) {
  GpuArray<uint16_t> values(matrix.rows * matrix.k);
  GPU_CHECK(FillInputs(values.get(), matrix, stream));
  return values;
}

// Computes C into poisoned memory, so that an output that nothing writes differs.
inline void Multiply(Kernel kernel, const uint16_t* a, const uint16_t* b, GpuArray<float>& c,
                     GemmShape shape, const Stream& stream) {
  c.Poison(stream);
  if (kernel.tile_n == kFewRows) {
    GPU_CHECK(GemmOfFewRows(a, b, c.get(), shape, stream));
  } else if (kernel.tile_n == 0) {
    GPU_CHECK(GemmByMma(a, b, c.get(), shape, stream));
  } else {
    GPU_CHECK(GemmByWgmma(a, b, c.get(), shape, kernel.tile_n, stream));
  }
}

inline const uint32_t* BitsOf(const float* values) {
  return reinterpret_cast<const uint32_t*>(values);
}

// Counts on the GPU what a comparison finds; waits for it.
class DifferenceCount {
 public:
  explicit DifferenceCount(const Stream& stream) : stream_(stream), count_(1) {}

  uint64_t Of(const float* left, const float* right, int64_t n) {
    return Counted(
        [&] { return CountDifferent(BitsOf(left), BitsOf(right), n, count_.get(), stream_); });
  }
  uint64_t OfSwapped(const float* left, const float* right, int m, int n) {
    return Counted([&] {
      return CountDifferentSwapped(BitsOf(left), BitsOf(right), m, n, count_.get(), stream_);
    });
  }
  uint64_t OfRounded(const float* left, const uint16_t* right, int64_t n) {
    return Counted([&] { return CountDifferentRounded(left, right, n, count_.get(), stream_); });
  }

 private:
  template <typename Compare>
  uint64_t Counted(const Compare& compare) {
    GPU_CHECK(cudaMemsetAsync(count_.get(), 0, count_.bytes(), stream_));
    GPU_CHECK(compare());
    stream_.Wait();
    return count_.Read()[0];
  }

  const Stream& stream_;
  GpuArray<uint64_t> count_;
};

}  // namespace baton
