// S2.gemm: matrix products with all their ends. Every kernel against the host's functions on the
// sums of the reference, then times of the layers of models.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/check/cublaslt.h"
#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/products.h"
#include "engine/numerics/gelu.h"

namespace baton {
namespace {

constexpr GemmEnd kEnds[] = {GemmEnd::kSums, GemmEnd::kFp32,   GemmEnd::kBf16, GemmEnd::kAdd,
                             GemmEnd::kGelu, GemmEnd::kSwiGlu, GemmEnd::kGeGlu};

const char* NameOf(GemmEnd end) {
  constexpr const char* kNames[] = {"sums", "fp32", "bf16", "add", "SwiGLU", "GeGLU", "GELU"};
  return kNames[static_cast<int>(end)];
}

// ---- ends ----

struct Case {
  GemmShape shape;
  int a_guard = 0;    // values behind a row of A, which no kernel may read
  int out_guard = 0;  // values behind a row of outputs, which none may write
  bool has_bias = false;
  bool has_edges = false;  // NaN and infinities in the first rows
  Distribution distribution = Distribution::kNormal;
};

constexpr Case kCases[] = {
    {{1, 16, 64}},
    {{1, 331, 128}, 64, 5, true},
    {{2, 4096, 2048}, 0, 0, true},
    {{3, 1008, 192}, 64, 8},
    {{5, 48, 64}, 0, 3, true, true},
    {{8, 512, 256}, 128, 0, true},
    {{9, 333, 64}, 0, 1},
    {{17, 272, 320}, 0, 6, true, false, Distribution::kWide},
    {{33, 331, 64}, 64, 0, true, true},
    {{64, 1040, 512}, 0, 4},
    {{65, 256, 128}, 0, 0, true, true},
    {{127, 4112, 64}, 64, 2, true},
    {{128, 384, 1024}, 0, 8, false, true, Distribution::kWide},
    {{129, 331, 64}, 0, 0, true},
    {{200, 992, 64}, 0, 7, true},
    {{257, 528, 448}, 64, 16, false, true},
    {{300, 1031, 128}, 0, 9, true, false, Distribution::kOutlier},
    {{300, 2064, 64}, 0, 0, true},
    {{600, 8208, 448}, 0, 8, true},
};

bf16 EndOf(GemmEnd end, float sum, bf16 x) {
  const float rounded = RoundBf16(sum);
  if (end == GemmEnd::kAdd) return FloatToBf16(Bf16ToFloat(x) + rounded);
  return FloatToBf16(end == GemmEnd::kGelu ? Gelu(rounded) : rounded);
}

bf16 GatedEndOf(GemmEnd end, float gate_sum, float up_sum) {
  const float gate = RoundBf16(gate_sum), up = RoundBf16(up_sum);
  return FloatToBf16((end == GemmEnd::kSwiGlu ? Silu(gate) : GeluTanh(gate)) * up);
}

// Memory of outputs, as 32-bit words.
struct Words {
  explicit Words(GemmEnd end, int64_t n)
      : is_fp32(IsFp32(end)), words(static_cast<size_t>(is_fp32 ? n : (n + 1) / 2), 0xffffffffu) {}
  bf16* halves() { return reinterpret_cast<bf16*>(words.data()); }
  float* floats() { return reinterpret_cast<float*>(words.data()); }
  bool is_fp32;
  std::vector<uint32_t> words;
};

class EndsOfCase {
 public:
  EndsOfCase(const Case& each, const Stream& stream)
      : case_(each),
        stream_(stream),
        count_(stream),
        a_stride_(each.shape.k + each.a_guard),
        a_(Inputs({each.distribution, 31, 1, each.shape.m, a_stride_}, stream)),
        b_(Inputs({each.distribution, 31, 2, each.shape.n, each.shape.k}, stream)),
        bias_(each.shape.n) {
    stream.Wait();
    if (each.has_edges) {
      std::vector<uint16_t> a = a_.Read();
      constexpr uint16_t kEdges[] = {0x7f81, 0x7f80, 0xff80, 0xffff};
      for (int row = 0; row < each.shape.m && row < 4; ++row)
        a[static_cast<size_t>(row) * a_stride_ + row] = kEdges[row];
      a_.Write(a);
    }
    for (int i = 0; i < each.shape.n; ++i)
      host_bias_.push_back(Bf16ToFloat(InputAt(Distribution::kNormal, 7, 3, 0, i, each.shape.n)) *
                           1.0078125f);
    bias_.Write(host_bias_);
    GpuArray<float> sums(int64_t{each.shape.m} * each.shape.n);
    sums.Poison(stream);
    GPU_CHECK(GemmByMma(a_.get(), a_stride_, b_.get(), SumsOf(sums.get(), each.shape.n), each.shape,
                        stream));
    stream.Wait();
    sums_ = sums.Read();
  }

  // Returns how many words of the outputs differ, guards included.
  uint64_t Differing(Kernel kernel, GemmEnd end) {
    if (!has_end_ || end != end_) Expect(end);
    GPU_CHECK(cudaMemcpyAsync(found_->get(), start_->get(), start_->bytes(),
                              cudaMemcpyDeviceToDevice, stream_));
    GemmOutput output;
    output.end = end;
    output.fp32 = IsFp32(end) ? reinterpret_cast<float*>(found_->get()) : nullptr;
    output.bf16 = IsFp32(end) ? nullptr : reinterpret_cast<uint16_t*>(found_->get());
    output.stride = Stride(end);
    output.bias = case_.has_bias ? bias_.get() : nullptr;
    GPU_CHECK(MultiplyBy(kernel, a_.get(), a_stride_, b_.get(), output, case_.shape, stream_));
    return count_.Of(reinterpret_cast<const float*>(found_->get()),
                     reinterpret_cast<const float*>(expected_->get()), found_->size());
  }

 private:
  int Width(GemmEnd end) const { return IsGated(end) ? case_.shape.n / 2 : case_.shape.n; }
  int Stride(GemmEnd end) const { return Width(end) + case_.out_guard; }

  float Sum(int row, int column) const {
    const float sum = sums_[static_cast<size_t>(row) * case_.shape.n + column];
    return case_.has_bias ? sum + host_bias_[column] : sum;
  }

  void Expect(GemmEnd end) {
    has_end_ = true;
    end_ = end;
    const int64_t stride = Stride(end);
    Words start(end, case_.shape.m * stride);
    if (end == GemmEnd::kAdd) {
      for (int row = 0; row < case_.shape.m; ++row)
        for (int column = 0; column < case_.shape.n; ++column)
          start.halves()[row * stride + column] =
              InputAt(Distribution::kNormal, 9, 4, row, column, case_.shape.n);
    }
    Words expected = start;
    for (int row = 0; row < case_.shape.m; ++row) {
      for (int column = 0; column < Width(end); ++column) {
        const int64_t at = row * stride + column;
        if (IsGated(end)) {
          const int gate = column / 8 * 16 + column % 8;
          expected.halves()[at] = GatedEndOf(end, Sum(row, gate), Sum(row, gate + 8));
        } else if (IsFp32(end)) {
          const float sum = Sum(row, column);
          expected.floats()[at] = end == GemmEnd::kSums ? sum : CanonicalizeNan(sum);
        } else {
          expected.halves()[at] = EndOf(end, Sum(row, column), expected.halves()[at]);
        }
      }
    }
    const int64_t n = static_cast<int64_t>(start.words.size());
    start_ = std::make_unique<GpuArray<uint32_t>>(n);
    expected_ = std::make_unique<GpuArray<uint32_t>>(n);
    found_ = std::make_unique<GpuArray<uint32_t>>(n);
    start_->Write(start.words);
    expected_->Write(expected.words);
    GPU_CHECK(cudaDeviceSynchronize());
  }

  const Case& case_;
  const Stream& stream_;
  DifferenceCount count_;
  const int a_stride_;
  GpuArray<uint16_t> a_;
  const GpuArray<uint16_t> b_;
  GpuArray<float> bias_;
  std::vector<float> host_bias_, sums_;
  bool has_end_ = false;
  GemmEnd end_ = GemmEnd::kSums;
  std::unique_ptr<GpuArray<uint32_t>> start_, expected_, found_;
};

// Counts what a kernel's end differs in, over all cases.
struct Found {
  uint64_t differing = 0;
  int cases = 0;
  std::string first;
};

void CompareEnds(Report& report) {
  const Stream stream;
  const std::vector<Kernel> kernels = AllKernels();
  std::vector<Found> found(std::size(kEnds) * kernels.size());
  for (const Case& each : kCases) {
    EndsOfCase ends(each, stream);
    for (size_t end = 0; end < std::size(kEnds); ++end) {
      if (IsGated(kEnds[end]) && each.shape.n % 16 != 0) continue;
      // A NaN plus a bias is not the tensor core's NaN any more, and not that of the host's.
      if (kEnds[end] == GemmEnd::kSums && each.has_edges && each.has_bias) continue;
      for (size_t kernel = 0; kernel < kernels.size(); ++kernel) {
        Found& total = found[end * kernels.size() + kernel];
        const uint64_t differing = ends.Differing(kernels[kernel], kEnds[end]);
        if (differing != 0 && total.differing == 0) total.first = "first " + NameOf(each.shape);
        total.differing += differing;
        ++total.cases;
      }
    }
  }
  for (size_t end = 0; end < std::size(kEnds); ++end) {
    for (size_t kernel = 0; kernel < kernels.size(); ++kernel) {
      const Found& total = found[end * kernels.size() + kernel];
      if (total.cases == 0) continue;
      report.AddDifferences("S2.gemm",
                            std::string(NameOf(kEnds[end])) + ": host = " + NameOf(kernels[kernel]),
                            std::to_string(total.cases) + " shapes", total.differing, total.first);
    }
  }
}

// ---- times ----

struct Layer {
  const char* name;
  int n, k;
  GemmEnd end;
};
constexpr Layer kLayers[] = {
    {"8B qkv", 6144, 4096, GemmEnd::kBf16},
    {"8B o", 4096, 4096, GemmEnd::kAdd},
    {"8B gate, up", 28672, 4096, GemmEnd::kSwiGlu},
    {"8B down", 4096, 14336, GemmEnd::kAdd},
    {"8B head", 128256, 4096, GemmEnd::kFp32},
    {"1B qkv", 3072, 2048, GemmEnd::kBf16},
    {"1B o", 2048, 2048, GemmEnd::kAdd},
    {"1B gate, up", 16384, 2048, GemmEnd::kSwiGlu},
    {"1B down", 2048, 8192, GemmEnd::kAdd},
};
constexpr int kRowCounts[] = {1, 8, 16, 32, 64, 128, 256, 512, 1000, 2048, 8192};
constexpr int kMaxRows = 8192, kMaxHeadRows = 128;

// Returns the time of one of `n` things that a graph does one after the other: no launch counts.
template <typename Submit>
double MicrosInGraph(const Stream& stream, int n, const Submit& submit) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < n; ++i) submit(i);
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  GPU_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  const double micros =
      MedianMicros(stream, 3, [&] { GPU_CHECK(cudaGraphLaunch(executable, stream)); });
  GPU_CHECK(cudaGraphExecDestroy(executable));
  GPU_CHECK(cudaGraphDestroy(graph));
  return micros / n;
}

std::string Rounded(double value, const char* format) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Returns whether a kernel may be the fastest one of products of m rows.
bool IsTimed(Kernel kernel, int m) {
  switch (kernel.family) {
    case Kernel::Family::kTma:
      return m >= 1024 ? kernel.columns >= 192 : m >= 512 ? kernel.columns >= 128 : m >= 16;
    case Kernel::Family::kStream:
      return m <= 64 && kernel.rows >= m && (kernel.rows == 8 || kernel.rows < 2 * m);
    default:
      return false;
  }
}

class LayerTimes {
 public:
  LayerTimes(Report& report, CublasLt* lt)
      : report_(report),
        lt_(lt),
        weights_(Inputs({Distribution::kWeight, 3, 2, kPoolRows, 4096}, stream_)),
        a_(Inputs({Distribution::kNormal, 3, 1, kMaxRows, 14336}, stream_)),
        out_(int64_t{kMaxRows} * 28672) {
    out_.Poison(stream_);
    stream_.Wait();
  }

  void Add(const Layer& layer, int m) {
    const GemmShape shape{m, layer.n, layer.k};
    GemmOutput output;
    output.end = layer.end;
    output.fp32 = reinterpret_cast<float*>(out_.get());
    output.bf16 = out_.get();
    output.stride = IsGated(layer.end) ? layer.n / 2 : layer.n;
    const double operations = 2.0 * m * layer.n * layer.k;
    const double bytes = 2.0 * layer.n * layer.k;
    // Each product has weights of its own, as far as there is room: the cache does not know them.
    const int copies = static_cast<int>(weights_.size() / (int64_t{layer.n} * layer.k));
    const int n =
        static_cast<int>(std::clamp(1e-3 / (operations / 500e12 + bytes / 3e12), 2.0, 40.0));
    const auto weights = [&](int i) {
      return weights_.get() + int64_t{i % copies} * layer.n * layer.k;
    };
    const double micros = MicrosInGraph(stream_, n, [&](int i) {
      GPU_CHECK(Multiply(a_.get(), layer.k, weights(i), output, shape, stream_));
    });
    std::string note = Rounded(operations / micros * 1e-6, "%.0f TFLOP/s, ") +
                       Rounded(bytes / micros * 1e-6, "%.2f TB/s of weights");
    const bool is_output_bf16 = !IsFp32(layer.end);
    const std::vector<LtAlgorithm> algorithms =
        lt_ == nullptr ? std::vector<LtAlgorithm>() : lt_->Algorithms(shape, is_output_bf16, 1);
    if (!algorithms.empty()) {
      bool ok = true;
      const double theirs = MicrosInGraph(stream_, n, [&](int i) {
        ok = lt_->Multiply(algorithms[0], a_.get(), weights(i), out_.get(), shape, is_output_bf16,
                           stream_) &&
             ok;
      });
      if (ok)
        note +=
            Rounded(theirs, "; cuBLASLt %.1f us") + Rounded(100 * theirs / micros, " (%.0f %%)");
    }
    note += "; all:";
    for (const Kernel kernel : AllKernels()) {
      if (!IsTimed(kernel, m)) continue;
      const double each = MicrosInGraph(stream_, n, [&](int i) {
        GPU_CHECK(MultiplyBy(kernel, a_.get(), layer.k, weights(i), output, shape, stream_));
      });
      note += " " + NameOf(kernel) + Rounded(each, " %.1f");
    }
    report_.Add({"S2.gemm", std::string(layer.name) + ", " + NameOf(layer.end), NameOf(shape),
                 micros, "us", Verdict::kInfo, note});
  }

 private:
  static constexpr int64_t kPoolRows = 131072;  // 1 GiB of weights

  Report& report_;
  CublasLt* const lt_;
  const Stream stream_;
  const GpuArray<uint16_t> weights_, a_;
  GpuArray<uint16_t> out_;
};

}  // namespace

void CheckProducts(Report& report, const CheckOptions& options) {
  CompareEnds(report);
  std::string reason;
  const std::unique_ptr<CublasLt> lt = CublasLt::Load(options.library_dir, &reason);
  if (lt == nullptr)
    report.Add({"S2.gemm", "cuBLASLt beside it", "", 0, "", Verdict::kInfo, reason});
  LayerTimes times(report, lt.get());
  for (const Layer& layer : kLayers) {
    for (const int m : kRowCounts) {
      if (layer.n == 128256 && m > kMaxHeadRows) continue;
      if (options.is_quick && m != 1 && m != 8 && m != 32 && m != 1000) continue;
      times.Add(layer, m);
    }
  }
}

}  // namespace baton
