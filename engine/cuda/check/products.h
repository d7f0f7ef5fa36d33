// Products of the check: inputs on the GPU, the kernels by name, and comparisons of whole outputs.
#pragma once

#include <string>
#include <vector>

#include "engine/cuda/check/check_kernels.h"
#include "engine/cuda/check/gpu.h"
#include "engine/cuda/gemm.h"

namespace baton {

// A GEMM kernel: the reference, or a family with its tiles.
struct Kernel {
  enum class Family { kReference, kTma, kStream };
  Family family = Family::kReference;
  int rows = 0;     // of a block
  int columns = 0;  // kTma: of a block; kStream: warps
};
inline constexpr Kernel kReference{};
inline constexpr Kernel TmaOf(int rows, int columns) {
  return {Kernel::Family::kTma, rows, columns};
}

// All of them.
inline std::vector<Kernel> AllKernels() {
  std::vector<Kernel> kernels{kReference};
  for (const StreamTiles& tiles : kStreamTiles)
    kernels.push_back({Kernel::Family::kStream, tiles.rows, tiles.warps});
  for (const TmaTiles& tiles : kTmaTiles) kernels.push_back(TmaOf(tiles.rows, tiles.columns));
  return kernels;
}

inline std::string NameOf(Kernel kernel) {
  const std::string rows = std::to_string(kernel.rows), columns = std::to_string(kernel.columns);
  switch (kernel.family) {
    case Kernel::Family::kReference:
      return "mma.sync";
    case Kernel::Family::kTma:
      return "tma " + rows + "x" + columns;
    case Kernel::Family::kStream:
      return "stream " + rows + "/" + columns;
  }
  return "";
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

inline cudaError_t MultiplyBy(Kernel kernel, const uint16_t* a, int a_stride, const uint16_t* b,
                              const GemmOutput& output, GemmShape shape, cudaStream_t stream) {
  switch (kernel.family) {
    case Kernel::Family::kReference:
      return GemmByMma(a, a_stride, b, output, shape, stream);
    case Kernel::Family::kTma:
      return GemmByTma(a, a_stride, b, output, shape, {kernel.rows, kernel.columns}, stream);
    case Kernel::Family::kStream:
      return GemmByStream(a, a_stride, b, output, shape, {kernel.rows, kernel.columns}, stream);
  }
  return cudaErrorInvalidValue;
}

// Computes C into poisoned memory, so that an output that nothing writes differs.
inline void Multiply(Kernel kernel, const uint16_t* a, const uint16_t* b, GpuArray<float>& c,
                     GemmShape shape, const Stream& stream) {
  c.Poison(stream);
  GPU_CHECK(MultiplyBy(kernel, a, shape.k, b, SumsOf(c.get(), shape.n), shape, stream));
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
