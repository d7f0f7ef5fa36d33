// S1: is the order of sums all that decides bits? Kernels against each other and against the model
// of the tensor cores' dot product.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "engine/cuda/check/parts.h"
#include "engine/cuda/check/predictions.h"
#include "engine/cuda/check/products.h"
#include "engine/numerics/tensor_core_dot.h"

namespace baton {
namespace {

std::vector<int> Depths(const CheckOptions& options) {
  return options.is_quick ? std::vector<int>{2048} : std::vector<int>{2048, 4096, 14336};
}

std::string Hex(uint32_t bits) {
  char text[12];
  std::snprintf(text, sizeof text, "%08x", bits);
  return text;
}

// Inputs, and their product by the reference.
struct Example {
  const Stream& stream;
  const uint16_t* a;
  const uint16_t* b;
  GemmShape shape;
  std::string name;
  const GpuArray<float>& reference;
};

// Calls `compare` with A (m, k), B (n, k) for each distribution and depth.
template <typename Compare>
void ForEachExample(const CheckOptions& options, int m, int n, const Compare& compare) {
  const Stream stream;
  GpuArray<float> reference(int64_t{m} * n);
  uint32_t seed = 100;
  for (int i = 0; i < kDistributions; ++i) {
    const auto distribution = static_cast<Distribution>(i);
    for (const int k : Depths(options)) {
      ++seed;
      const GpuArray<uint16_t> a = Inputs({distribution, seed, 1, m, k}, stream),
                               b = Inputs({distribution, seed, 2, n, k}, stream);
      const GemmShape shape{m, n, k};
      Multiply(kReference, a.get(), b.get(), reference, shape, stream);
      compare(Example{stream, a.get(), b.get(), shape, NameOf(shape) + ", " + NameOf(distribution),
                      reference});
    }
  }
}

// Says which element differs first and how.
std::string FirstDifference(std::span<const uint32_t> found, std::span<const uint32_t> expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (found[i] != expected[i])
      return "element " + std::to_string(i) + ": " + Hex(found[i]) + ", expected " +
             Hex(expected[i]);
  return "";
}

std::vector<uint32_t> BitsOf(const GpuArray<float>& c) {
  const std::vector<float> values = c.Read();
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

uint64_t Differing(std::span<const uint32_t> found, std::span<const uint32_t> expected) {
  uint64_t differing = 0;
  for (size_t i = 0; i < expected.size(); ++i) differing += found[i] != expected[i] ? 1 : 0;
  return differing;
}

}  // namespace

void CompareInstructions(Report& report, const CheckOptions& options) {
  ForEachExample(options, 192, 520, [&](const Example& given) {
    GpuArray<float> other(given.reference.size());
    DifferenceCount count(given.stream);
    for (const Kernel kernel : AllKernels()) {  // the reference, too: twice the same
      Multiply(kernel, given.a, given.b, other, given.shape, given.stream);
      report.AddDifferences("S1.a", "mma.sync = " + NameOf(kernel), given.name,
                            count.Of(given.reference.get(), other.get(), other.size()));
    }
  });
}

void CompareSwapped(Report& report, const CheckOptions& options) {
  ForEachExample(options, 72, 264, [&](const Example& given) {
    const auto [m, n, k] = given.shape;
    GpuArray<float> other(given.reference.size());
    DifferenceCount count(given.stream);
    for (const Kernel kernel : AllKernels()) {
      Multiply(kernel, given.b, given.a, other, {n, m, k}, given.stream);
      report.AddDifferences("S1.b", "mma.sync = swapped " + NameOf(kernel), given.name,
                            count.OfSwapped(given.reference.get(), other.get(), m, n));
    }
  });
}

void CompareRows(Report& report, const CheckOptions& options) {
  constexpr int kM = 1000, kN = 1024;
  ForEachExample(options, kM, kN, [&](const Example& given) {
    const int k = given.shape.k;
    DifferenceCount count(given.stream);
    for (const Kernel kernel : AllKernels()) {
      uint64_t differing = 0;
      for (const int m : {1, 2, 3, 8, 17, 64, 65, 128, kM}) {
        GpuArray<float> some(int64_t{m} * kN);
        // At the start, and where rows have another place and other neighbours.
        for (const int first : {0, std::min(37, kM - m), kM - m}) {
          Multiply(kernel, given.a + int64_t{first} * k, given.b, some, {m, kN, k}, given.stream);
          differing +=
              count.Of(given.reference.get() + int64_t{first} * kN, some.get(), some.size());
        }
      }
      report.AddDifferences("S1.d", "rows at M 1 to 1000, three places, " + NameOf(kernel),
                            given.name, differing);
    }
  });
}

void ComparePredictions(Report& report, const CheckOptions& options) {
  std::ifstream file(options.predictions);
  const std::vector<Prediction> predictions = ReadPredictions(file);
  if (predictions.empty()) {
    report.Add({"S1.e", "committed predictions", "", 0, "", Verdict::kFail,
                "no predictions in '" + options.predictions + "'"});
  }
  const Stream stream;
  // Compares one product of every kernel with `expected`, or only its digest.
  const auto compare = [&](const Prediction& shape, std::span<const uint32_t> expected) {
    const GemmShape gemm{shape.m, shape.n, shape.k};
    const auto a = Inputs({shape.distribution, shape.seed, 1, shape.m, shape.k}, stream),
               b = Inputs({shape.distribution, shape.seed, 2, shape.n, shape.k}, stream);
    GpuArray<float> c(int64_t{shape.m} * shape.n);
    const std::string name = NameOf(gemm) + ", " + NameOf(shape.distribution);
    for (const Kernel kernel : AllKernels()) {
      Multiply(kernel, a.get(), b.get(), c, gemm, stream);
      stream.Wait();
      const std::vector<uint32_t> found = BitsOf(c);
      if (expected.empty()) {
        report.AddDifferences("S1.e", "committed digest = " + NameOf(kernel), name,
                              DigestOf(found) == shape.digest ? 0 : 1);
      } else {
        report.AddDifferences("S1.e", "model = " + NameOf(kernel), name, Differing(found, expected),
                              FirstDifference(found, expected));
      }
    }
  };
  for (const Prediction& prediction : predictions) compare(prediction, {});
  uint32_t seed = 500;
  for (int i = 0; i < kDistributions; ++i) {
    for (const int k :
         options.is_quick ? std::vector<int>{64, 2048} : std::vector<int>{64, 2048, 4096, 14336}) {
      const Prediction shape{static_cast<Distribution>(i), seed++, 25, 40, k, 0};
      compare(shape, PredictedProduct(shape));
    }
  }
}

namespace {

// Rows of 64 values of which only the first few matter: what the model says of edges.
struct Edge {
  const char* name;
  std::vector<std::pair<float, float>> products;
};

bf16 Bf16Of(float value) { return FloatToBf16(value); }
float Power(int exponent) { return std::ldexp(1.0f, exponent); }

void CompareEdges(Report& report) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Edge edges[] = {
      {"subnormal operand", {{Power(-133), 1}}},
      {"subnormal result", {{Power(-100), Power(-46)}}},
      {"half of the smallest subnormal, twice",
       {{Power(-75), Power(-75)}, {Power(-75), Power(-75)}}},
      {"2^100 - 2^100 + 1", {{Power(50), Power(50)}, {-Power(50), Power(50)}, {1, 1}}},
      {"1.5 * 1.5 - 1.5 * 1.5 + 2^-25", {{1.5f, 1.5f}, {-1.5f, 1.5f}, {Power(-25), 1}}},
      {"1 - 2^-25", {{1, 1}, {-Power(-12), Power(-13)}}},
      {"1 - 2^-26", {{1, 1}, {-Power(-13), Power(-13)}}},
      {"-0 times 1", {{-0.0f, 1}}},
      {"0 times 2^100, and 2^-40", {{0, Power(100)}, {Power(-40), 1}}},
      {"2^128", {{Power(64), Power(64)}}},
      {"infinity", {{infinity, 1}}},
      {"infinity times 0", {{infinity, 0}}},
  };
  const Stream stream;
  for (const Edge& edge : edges) {
    std::vector<uint16_t> a(kTensorCoreGroup * 4), b(a.size());
    for (size_t i = 0; i < edge.products.size(); ++i) {
      a[i] = Bf16Of(edge.products[i].first);
      b[i] = Bf16Of(edge.products[i].second);
    }
    const int k = static_cast<int>(a.size());
    const uint32_t expected = TensorCoreDot(a.data(), b.data(), k);
    GpuArray<uint16_t> device_a(k), device_b(k);
    device_a.Write(a);
    device_b.Write(b);
    GpuArray<float> c(1);
    for (const Kernel kernel : {kReference, TmaOf(64, 64)}) {
      Multiply(kernel, device_a.get(), device_b.get(), c, {1, 1, k}, stream);
      stream.Wait();
      const uint32_t found = BitsOf(c)[0];
      // Edges are outside of what models compute; the model of them is to be mended, not the
      // promise.
      report.Add({"S1.h", edge.name, NameOf(kernel), found == expected ? 0.0 : 1.0, "differing",
                  found == expected ? Verdict::kPass : Verdict::kWarn,
                  "bits " + Hex(found) + ", the model says " + Hex(expected)});
    }
  }
}

}  // namespace

// Attention sums P * V over tiles whose last keys are masked: P = 0 there, and V is any finite
// value.
void CompareMaskedTail(Report& report) {
  constexpr int kM = 64, kN = 128, kKeys = 100, kShort = 128, kLong = 512;
  const Stream stream;
  DifferenceCount count(stream);
  std::vector<uint16_t> p(kM * kLong), v(kN * kLong), p_short(kM * kShort), v_short(kN * kShort);
  for (int row = 0; row < kM; ++row) {
    for (int key = 0; key < kKeys; ++key) {
      p[row * kLong + key] = InputAt(Distribution::kNormal, 7, 1, row, key, kLong) & 0x7fffu;
      p_short[row * kShort + key] = p[row * kLong + key];
    }
  }
  for (int row = 0; row < kN; ++row) {
    for (int key = 0; key < kKeys; ++key) {
      v[row * kLong + key] = InputAt(Distribution::kNormal, 7, 2, row, key, kLong);
      v_short[row * kShort + key] = v[row * kLong + key];
    }
  }
  GpuArray<uint16_t> device_p(kM * kLong), device_v(kN * kLong), short_p(kM * kShort),
      short_v(kN * kShort);
  short_p.Write(p_short);
  short_v.Write(v_short);
  device_p.Write(p);
  GpuArray<float> expected(kM * kN), found(kM * kN);
  Multiply(kReference, short_p.get(), short_v.get(), expected, {kM, kN, kShort}, stream);
  for (const char* tail : {"zero", "random", "2^100"}) {
    for (int row = 0; row < kN; ++row)
      for (int key = kKeys; key < kLong; ++key)
        v[row * kLong + key] = tail[0] == 'z' ? uint16_t{0}
                               : tail[0] == 'r'
                                   ? InputAt(Distribution::kNormal, 8, 2, row, key, kLong)
                                   : Bf16Of(Power(100));
    device_v.Write(v);
    for (const Kernel kernel : {kReference, TmaOf(64, 64), TmaOf(128, 128)}) {
      Multiply(kernel, device_p.get(), device_v.get(), found, {kM, kN, kLong}, stream);
      const uint64_t differing = count.Of(expected.get(), found.get(), found.size());
      const Verdict bad = tail[0] == '2' ? Verdict::kInfo : Verdict::kFail;  // no model has such V
      report.Add({"S1.f", std::string("100 keys, tail of V is ") + tail, NameOf(kernel),
                  static_cast<double>(differing), "differing",
                  differing == 0 ? Verdict::kPass : bad});
    }
  }
}

void CheckExp2(Report& report) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f, -0.0f,   -infinity, -1,   -125.5f,
                                -126, -126.5f, -127,      -149, -150};
  const int n = static_cast<int>(x.size());
  const Stream stream;
  GpuArray<float> device_x(n), results(2 * n);
  device_x.Write(x);
  results.Poison(stream);
  GPU_CHECK(Exp2Of(device_x.get(), results.get(), n, stream));
  stream.Wait();
  const std::vector<float> found = results.Read();
  for (int i = 0; i < 2 * n; ++i) {
    const float at = x[i % n];
    Verdict verdict = Verdict::kInfo;  // the softmax needs these to be exact
    if (at == 0) verdict = found[i] == 1.0f ? Verdict::kPass : Verdict::kFail;
    if (at == -infinity) verdict = found[i] == 0.0f ? Verdict::kPass : Verdict::kFail;
    if (at == -1) verdict = found[i] == 0.5f ? Verdict::kPass : Verdict::kFail;
    report.Add({"S1.h", i < n ? "ex2.approx" : "ex2.approx.ftz", "x = " + std::to_string(at),
                found[i], "", verdict, "bits " + Hex(__builtin_bit_cast(uint32_t, found[i]))});
  }
  CompareEdges(report);
}

}  // namespace baton
