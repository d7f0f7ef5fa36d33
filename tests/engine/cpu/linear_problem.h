// Random linear layers for tests: inputs of several classes, poisoned outputs, and the scalar
// reference's answer.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "engine/cpu/linear/linear.h"
#include "engine/cpu/linear/linear_reference.h"
#include "engine/cpu/linear/linear_tables.h"
#include "engine/cpu/machine/aligned_buffer.h"
#include "engine/threads/mxcsr.h"

namespace baton {

enum class Values { kNormal, kWideExponents, kTiny, kSpecial };

struct Shape {
  int64_t rows = 1, n = 16, k = 32;
  Epilogue epilogue = Epilogue::kBf16;
  bool bias = false;
  WeightFormat format = {};
  bool whole_lines = false;  // rows of y start at cache lines
};

class LinearProblem {
 public:
  LinearProblem(const Shape& shape, Values values, uint32_t seed)
      : shape_(shape), values_(values), random_(seed) {
    const int64_t k_padded = RoundUp(shape.k, 32);
    // Elements beyond k_padded are NaN, because no sum may read them.
    x_stride_ = k_padded + 16;
    x_.assign(static_cast<size_t>(shape.rows * x_stride_), kPoison);
    for (int64_t r = 0; r < shape.rows; ++r) {
      for (int64_t i = 0; i < k_padded; ++i) {
        x_[static_cast<size_t>(r * x_stride_ + i)] = i < shape.k ? NextBf16() : bf16{0};
      }
    }
    void* packed =
        packed_.Reserve(static_cast<size_t>(PackedWeights::Bytes(shape.n, shape.k, shape.format)));
    weights_ = {packed, shape.n, shape.k, shape.format};
    if (shape.format.type == WeightType::kBf16) {
      PackBf16(static_cast<bf16*>(packed));
    } else {
      PackIntegers(static_cast<std::byte*>(packed));
    }
    if (shape.bias) {
      for (int64_t i = 0; i < shape.n; ++i) bias_.push_back(Bf16ToFloat(NextBf16()) * 1.001f);
    }
    columns_ = IsGated(shape.epilogue) ? shape.n / 2 : shape.n;
    y_stride_ = shape.whole_lines ? RoundUp(columns_, 32) + 32 : columns_ + 3;
    for (int64_t i = 0; i < shape.rows * y_stride_; ++i) residual_.push_back(NextBf16());
  }

  // Returns the bits of the outputs with the guard columns, which must keep their poison.
  std::vector<uint32_t> Run(LinearKernels& kernels, ComputePool& pool) {
    return Run(kernels, pool, 0, shape_.rows);
  }
  // Returns the bits of rows [begin, end) only.
  std::vector<uint32_t> Run(LinearKernels& kernels, ComputePool& pool, int64_t begin, int64_t end) {
    Outputs out(*this, begin, end);
    kernels.Run(out.args, pool);
    return out.Bits();
  }
  // Returns the bits with the norm of each row applied by the layer as it packs the row.
  std::vector<uint32_t> RunNormed(LinearKernels& kernels, ComputePool& pool, const RowNorm& norm) {
    Outputs out(*this, 0, shape_.rows);
    out.args.norm = norm;
    kernels.Run(out.args, pool);
    return out.Bits();
  }
  // Returns the bits of the given rows, in this order; not for a residual layer.
  std::vector<uint32_t> RunRows(LinearKernels& kernels, ComputePool& pool,
                                const std::vector<int32_t>& rows) {
    Outputs out(*this, 0, static_cast<int64_t>(rows.size()));
    out.args.x_rows = rows.data();
    kernels.Run(out.args, pool);
    return out.Bits();
  }
  // Applies the norm to every row beforehand.
  void TakeNorms(const RowNorm& norm) {
    const NumericsMxcsrScope scope;
    for (int64_t r = 0; r < shape_.rows; ++r) {
      norm.apply(norm, x_.data() + r * x_stride_, x_.data() + r * x_stride_);
    }
  }
  // Returns the bits of each of several layers computed together.
  static std::vector<std::vector<uint32_t>> RunAll(std::span<LinearProblem> problems,
                                                   LinearKernels& kernels, ComputePool& pool) {
    std::vector<Outputs> outputs;
    std::vector<LinearArgs> layers;
    for (LinearProblem& problem : problems) outputs.emplace_back(problem, 0, problem.shape_.rows);
    for (const Outputs& out : outputs) layers.push_back(out.args);
    kernels.RunAll(layers, pool);
    std::vector<std::vector<uint32_t>> bits;
    for (const Outputs& out : outputs) bits.push_back(out.Bits());
    return bits;
  }
  // Returns the bits by one table of kernels, with at most as many rows as it takes at once, and
  // packed rows and scratch of the sizes that it asks for. Empty: the table wrote beyond them.
  std::vector<uint32_t> RunTable(const LinearKernelTable& table, int64_t members) {
    Outputs out(*this, 0, shape_.rows);
    LinearJob job = JobOf(out.args);
    job.members = job.item_step = members;
    FencedMemory packed_rows(table.packed_rows_bytes(job)), scratch(table.scratch_bytes(job));
    FencedMemory row(RoundUp(job.k, 32) * static_cast<int64_t>(sizeof(bf16)));
    job.packed_rows = packed_rows.data();
    const NumericsMxcsrScope scope;
    for (int64_t i = 0; i < table.pack_items(job); ++i) {
      table.pack(job, i, static_cast<bf16*>(row.data()));
    }
    for (int64_t i = 0; i < table.run_items(job); ++i) table.run(job, i, scratch.data());
    if (!packed_rows.IsIntact() || !scratch.IsIntact() || !row.IsIntact()) return {};
    return out.Bits();
  }
  std::vector<uint32_t> Expected() {
    Outputs out(*this, 0, shape_.rows);
    const NumericsMxcsrScope scope;
    RunLinearReference(JobOf(out.args));
    return out.Bits();
  }

  int64_t y_stride() const { return y_stride_; }
  const std::vector<bf16>& matrix() const { return matrix_; }        // bf16 weights
  const std::vector<int8_t>& integers() const { return integers_; }  // integer weights
  const std::vector<float>& scales() const { return scales_; }       // (n, groups)
  const PackedWeights& weights() const { return weights_; }

 private:
  static constexpr bf16 kPoison = 0x7fff;  // a NaN that no kernel writes
  static constexpr uint32_t kPoison32 = 0x7fffffff;

  // Memory that starts at a cache line, with a fence at the end.
  class FencedMemory {
   public:
    explicit FencedMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
      std::memset(memory_.Reserve(bytes_ + kFence), 0x5a, bytes_ + kFence);
    }
    void* data() { return memory_.Reserve(bytes_); }
    bool IsIntact() {
      const unsigned char* const fence = static_cast<unsigned char*>(data()) + bytes_;
      return std::all_of(fence, fence + kFence, [](unsigned char byte) { return byte == 0x5a; });
    }

   private:
    static constexpr size_t kFence = 8192;
    size_t bytes_;
    AlignedBuffer memory_;
  };

  struct Outputs {
    Outputs(LinearProblem& p, int64_t begin, int64_t end) {
      const size_t size = static_cast<size_t>((end - begin) * p.y_stride_);
      // The start of a line, or one bf16 after it.
      y.assign(size + 33, kPoison);
      const size_t past = reinterpret_cast<uintptr_t>(y.data()) / 2 % 32;
      bf16* const first = y.data() + (32 - past) + (p.shape_.whole_lines ? 0 : 1);
      y_fp32.assign(size, __builtin_bit_cast(float, kPoison32));
      args.x = p.x_.data() + begin * p.x_stride_;
      args.x_stride = p.x_stride_;
      args.rows = end - begin;
      args.weights = p.weights_;
      args.bias = p.bias_.empty() ? nullptr : p.bias_.data();
      args.epilogue = p.shape_.epilogue;
      args.y_stride = p.y_stride_;
      if (p.shape_.epilogue == Epilogue::kFp32) {
        args.y_fp32 = y_fp32.data();
      } else {
        args.y = first;
      }
      if (p.shape_.epilogue == Epilogue::kResidualAdd) {
        // In place, as in the residual stream.
        std::copy_n(p.residual_.begin() + begin * p.y_stride_, size, first);
        args.residual = first;
        args.residual_stride = p.y_stride_;
      }
    }
    std::vector<uint32_t> Bits() const {
      std::vector<uint32_t> bits(y_fp32.size());
      for (size_t i = 0; i < bits.size(); ++i) {
        bits[i] = args.y != nullptr ? args.y[i] : __builtin_bit_cast(uint32_t, y_fp32[i]);
      }
      return bits;
    }
    std::vector<bf16> y;
    std::vector<float> y_fp32;
    LinearArgs args;
  };

  void PackBf16(bf16* packed) {
    matrix_.resize(static_cast<size_t>(shape_.n * shape_.k));
    for (bf16& w : matrix_) w = NextBf16();
    for (int64_t block = 0; block < RoundUp(shape_.n, 16) / 16; ++block) {
      PackBlock(matrix_.data(), shape_.n, shape_.k, block, packed);
    }
  }

  // Uses every value of the format, the extremes often, so that sums reach their maximum.
  void PackIntegers(std::byte* packed) {
    const int min = shape_.format.type == WeightType::kInt8 ? -128 : -8;
    const int64_t groups = shape_.format.Groups(shape_.k);
    for (int64_t i = 0; i < shape_.n * shape_.k; ++i) {
      const uint32_t r = static_cast<uint32_t>(random_());
      integers_.push_back(
          static_cast<int8_t>(r % 4 == 0 ? min : min + static_cast<int>(r >> 8) % (-2 * min)));
    }
    for (int64_t i = 0; i < shape_.n * groups; ++i) scales_.push_back(Bf16ToFloat(NextBf16()));
    for (int64_t n = 0; n < shape_.n; n += 16) {
      PackIntegerBlock(&integers_[static_cast<size_t>(n * shape_.k)],
                       &scales_[static_cast<size_t>(n * groups)],
                       std::min<int64_t>(16, shape_.n - n), shape_.k, shape_.format,
                       packed + n / 16 * shape_.format.BlockBytes(shape_.k));
    }
  }

  bf16 NextBf16() {
    const uint32_t bits = static_cast<uint32_t>(random_());
    const uint32_t sign_mantissa = (bits & 0x807fu);
    const uint32_t r = bits >> 16;
    switch (values_) {
      case Values::kNormal: {
        const double u = std::normal_distribution<double>()(random_);
        return FloatToBf16(static_cast<float>(u));
      }
      case Values::kWideExponents:  // 2^-70 .. 2^57
        return static_cast<bf16>(sign_mantissa | (57 + r % 128) << 7);
      case Values::kTiny:  // products around the smallest normal; denormals and -0 among the inputs
        return static_cast<bf16>(sign_mantissa | (r % 8 == 0 ? 0u : 50 + r % 24) << 7);
      case Values::kSpecial: {  // mostly ordinary, some infinities, NaN, -0, denormals
        static constexpr bf16 kRare[] = {0x7f80, 0xff80, 0x7fc3, 0x8000, 0x0000, 0x0001, 0x807f};
        if (r % 100 == 0) return kRare[(r / 100) % 7];
        return static_cast<bf16>(sign_mantissa | (120 + r % 16) << 7);
      }
    }
    return 0;
  }

  Shape shape_;
  Values values_;
  std::mt19937 random_;
  std::vector<bf16> x_, matrix_, residual_;
  std::vector<int8_t> integers_;
  std::vector<float> scales_;
  std::vector<float> bias_;
  AlignedBuffer packed_;
  PackedWeights weights_;
  int64_t x_stride_ = 0, y_stride_ = 0, columns_ = 0;
};

}  // namespace baton
