// The GEMM kernels on an emulated block of threads: their outputs have the predicted digests,
// whatever the order of threads and copies. What the emulation must notice is tried with kernels
// that lack it. PTX itself is not run: its forms are cuda_resources_test's.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <vector>

#include "engine/cuda/check/predictions.h"
// mma.cuh is the emulated one: the include path has tests/engine/cuda/emulated first.
#include "engine/cuda/mma.cuh"
// The kernels include it.
#include "engine/cuda/gemm_few.cuh"
#include "engine/cuda/gemm_mma.cuh"
#include "engine/cuda/gemm_stream.cuh"
#include "engine/cuda/gemm_tma.cuh"
#include "engine/cuda/gemm_wgmma.cuh"
#include "engine/numerics/gelu.h"

namespace baton {
namespace {

constexpr uint32_t kPoison = 0xffffffffu;

// Rows of inputs at an address that 16 divides, as those of a GPU are.
class Matrix {
 public:
  Matrix(const Prediction& shape, uint32_t id, int n_rows)
      : values_(static_cast<size_t>(n_rows) * shape.k + 8) {
    for (int row = 0; row < n_rows; ++row)
      for (int column = 0; column < shape.k; ++column)
        values()[static_cast<size_t>(row) * shape.k + column] =
            InputAt(shape.distribution, shape.seed, id, row, column, shape.k);
  }
  uint16_t* values() {
    return reinterpret_cast<uint16_t*>((reinterpret_cast<uintptr_t>(values_.data()) + 15) & ~15ul);
  }
  std::span<const uint16_t> span() { return {values(), values_.size() - 8}; }

 private:
  std::vector<uint16_t> values_;
};

struct Product {
  std::vector<uint32_t> bits;
  std::set<std::string> complaints;
};

// Runs a grid of blocks; `kernel` computes C.
Product RunGrid(const Prediction& shape, int columns, int rows, int n_threads, int shared_bytes,
                uint32_t seed,
                void (*kernel)(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape)) {
  Matrix a(shape, 1, shape.m), b(shape, 2, shape.n);
  std::vector<float> c(static_cast<size_t>(shape.m) * shape.n, __builtin_bit_cast(float, kPoison));
  Product product;
  for (int y = 0; y < (shape.m + rows - 1) / rows; ++y) {
    for (int x = 0; x < (shape.n + columns - 1) / columns; ++x) {
      EmulatedBlock block(n_threads, shared_bytes, seed++);
      block.AllowSource(a.span());
      block.AllowSource(b.span());
      product.complaints.merge(
          block.Run({static_cast<unsigned>(x), static_cast<unsigned>(y), 0}, [&] {
            kernel(a.values(), b.values(), c.data(), {shape.m, shape.n, shape.k});
          }));
    }
  }
  for (const float value : c) product.bits.push_back(__builtin_bit_cast(uint32_t, value));
  return product;
}

// The sums of a kernel, without an end of their own.
template <auto kKernel>
void SumsBy(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape) {
  kKernel(a, shape.k, b, SumsOf(c, shape.n), shape);
}

Product ByMma(const Prediction& shape, uint32_t seed) {
  return RunGrid(shape, kBlockColumns, 16, kWarps * 32, 0, seed, SumsBy<GemmMmaKernel>);
}
template <int kTileM>
Product OfFewRows(const Prediction& shape, uint32_t seed) {
  return RunGrid(shape, kWeightRows, kTileM, kFewThreads, kFewSharedBytes<kTileM>, seed,
                 SumsBy<GemmFewMmaKernel<kTileM>>);
}
template <int kTileN>
Product ByWgmma(const Prediction& shape, uint32_t seed) {
  return RunGrid(shape, kTileN, kTileM, kThreads, kSharedBytes<kTileN>, seed,
                 SumsBy<GemmWgmmaKernel<kTileN>>);
}

// Runs `n_blocks` blocks of a kernel that stays; `columns` of boxes, `rows` of each matrix.
template <typename Kernel>
Product RunStaying(Kernel kernel, const Prediction& shape, int n_blocks, int n_threads,
                   int shared_bytes, int a_rows, int b_rows, int columns, uint32_t seed) {
  Matrix a(shape, 1, shape.m), b(shape, 2, shape.n);
  std::vector<float> c(static_cast<size_t>(shape.m) * shape.n, __builtin_bit_cast(float, kPoison));
  const TensorMap a_map = EmulatedTensorMap(a.values(), shape.m, shape.k, shape.k, a_rows, columns);
  const TensorMap b_map = EmulatedTensorMap(b.values(), shape.n, shape.k, shape.k, b_rows, columns);
  Product product;
  for (int x = 0; x < n_blocks; ++x) {
    EmulatedBlock block(n_threads, shared_bytes, seed++);
    block.set_grid_size({static_cast<unsigned>(n_blocks), 1, 1});
    product.complaints.merge(block.Run({static_cast<unsigned>(x), 0, 0}, [&] {
      kernel(a_map, b_map, SumsOf(c.data(), shape.n), {shape.m, shape.n, shape.k});
    }));
  }
  for (const float value : c) product.bits.push_back(__builtin_bit_cast(uint32_t, value));
  return product;
}

template <int kRows, int kWarps>
Product ByStream(const Prediction& shape, uint32_t seed) {
  using Tile = StreamTile<kRows, kWarps>;
  return RunStaying(GemmStreamMmaKernel<kRows, kWarps>, shape,
                    std::min(3, (shape.n + Tile::kWeights - 1) / Tile::kWeights), Tile::kThreads,
                    Tile::kSharedBytes, kRows, Tile::kWeights, Tile::kDepth, seed);
}
template <int kGroups, int kTileN>
Product ByTma(const Prediction& shape, uint32_t seed) {
  using Tile = TmaTile<kGroups, kTileN>;
  return RunStaying(GemmTmaWgmmaKernel<kGroups, kTileN, 1>, shape, 2, Tile::kThreads,
                    Tile::kSharedBytes, Tile::kRows, kTileN, 1, seed);
}

// Returns the small ones of the distribution whose sums depend most on their order.
std::vector<Prediction> SmallPredictions() {
  std::ifstream file(BATON_TEST_DATA "/golden/cuda-sm90-gemm.txt");
  std::vector<Prediction> small;
  for (const Prediction& prediction : ReadPredictions(file))
    if (prediction.distribution == Distribution::kWide &&
        int64_t{prediction.m} * prediction.n * prediction.k < 200000)
      small.push_back(prediction);
  REQUIRE(small.size() == 7);
  return small;
}

void CheckAll(Product (*multiply)(const Prediction& shape, uint32_t seed)) {
  uint32_t seed = 1;
  for (const Prediction& prediction : SmallPredictions()) {
    const Product product = multiply(prediction, seed++);
    INFO(LineOf(prediction));
    CHECK(product.complaints == std::set<std::string>{});
    CHECK(std::count(product.bits.begin(), product.bits.end(), kPoison) == 0);
    CHECK(DigestOf(product.bits) == prediction.digest);
  }
}

TEST_CASE("mma.sync: outputs have the predicted digests") { CheckAll(ByMma); }
TEST_CASE("few rows, 8: outputs have the predicted digests") { CheckAll(OfFewRows<8>); }
TEST_CASE("few rows, 16: outputs have the predicted digests") { CheckAll(OfFewRows<16>); }
TEST_CASE("few rows, 32: outputs have the predicted digests") { CheckAll(OfFewRows<32>); }
TEST_CASE("few rows, 64: outputs have the predicted digests") { CheckAll(OfFewRows<64>); }
TEST_CASE("stream 8/1: outputs have the predicted digests") { CheckAll(ByStream<8, 1>); }
TEST_CASE("stream 16/2: outputs have the predicted digests") { CheckAll(ByStream<16, 2>); }
TEST_CASE("stream 64/4: outputs have the predicted digests") { CheckAll(ByStream<64, 4>); }
TEST_CASE("tma 64 x 64: outputs have the predicted digests") { CheckAll(ByTma<1, 64>); }
TEST_CASE("tma 128 x 128: outputs have the predicted digests") { CheckAll(ByTma<2, 128>); }
TEST_CASE("wgmma n8: outputs have the predicted digests") { CheckAll(ByWgmma<8>); }
TEST_CASE("wgmma n64: outputs have the predicted digests") { CheckAll(ByWgmma<64>); }
TEST_CASE("wgmma n128: outputs have the predicted digests") { CheckAll(ByWgmma<128>); }

TEST_CASE("wgmma n256: one shape at several orders of threads and copies") {
  const Prediction shape{Distribution::kWide, 77, 70, 260, 320};
  const std::vector<uint32_t> expected = PredictedProduct(shape);
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const Product product = ByWgmma<256>(shape, seed);
    CHECK(product.complaints == std::set<std::string>{});
    CHECK(product.bits == expected);
  }
}

// ---- ends ----

bf16 EndOf(GemmEnd end, float sum, bf16 x) {
  const float rounded = RoundBf16(sum);
  if (end == GemmEnd::kAdd) return FloatToBf16(Bf16ToFloat(x) + rounded);
  return FloatToBf16(end == GemmEnd::kGelu ? Gelu(rounded) : rounded);
}

bf16 GatedEndOf(GemmEnd end, float gate_sum, float up_sum) {
  const float gate = RoundBf16(gate_sum), up = RoundBf16(up_sum);
  return FloatToBf16((end == GemmEnd::kSwiGlu ? Silu(gate) : GeluTanh(gate)) * up);
}

// Outputs with `guard` values behind each row, which stay as they are.
template <auto kKernel>
void CheckEnd(GemmEnd end, Prediction shape, int guard, bool has_bias, int columns, int rows,
              int n_threads, int shared_bytes) {
  const int width = IsGated(end) ? shape.n / 2 : shape.n, stride = width + guard;
  Matrix a(shape, 1, shape.m), b(shape, 2, shape.n);
  std::vector<float> bias;
  for (int i = 0; i < shape.n; ++i) bias.push_back(static_cast<float>(i % 7) - 2.3f);
  std::vector<uint32_t> expected(static_cast<size_t>(shape.m) * stride, kPoison);
  if (!IsFp32(end))
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = Mix(static_cast<uint32_t>(i)) >> 18;
  std::vector<float> fp32(expected.size(), __builtin_bit_cast(float, kPoison));
  std::vector<uint16_t> halves(expected.begin(), expected.end());
  const std::vector<uint32_t> sums = PredictedProduct(shape);
  const auto sum = [&](int row, int column) {
    const float value =
        __builtin_bit_cast(float, sums[static_cast<size_t>(row) * shape.n + column]);
    return has_bias ? value + bias[column] : value;
  };
  for (int row = 0; row < shape.m; ++row) {
    for (int column = 0; column < width; ++column) {
      uint32_t& value = expected[static_cast<size_t>(row) * stride + column];
      const int gate = column / 8 * 16 + column % 8;
      value = IsFp32(end)    ? __builtin_bit_cast(uint32_t, sum(row, column))
              : IsGated(end) ? GatedEndOf(end, sum(row, gate), sum(row, gate + 8))
                             : EndOf(end, sum(row, column), static_cast<bf16>(value));
    }
  }
  const GemmOutput output{end, fp32.data(), halves.data(), stride,
                          has_bias ? bias.data() : nullptr};
  for (int y = 0; y < (shape.m + rows - 1) / rows; ++y) {
    for (int x = 0; x < (shape.n + columns - 1) / columns; ++x) {
      EmulatedBlock block(n_threads, shared_bytes, 5);
      block.AllowSource(a.span());
      block.AllowSource(b.span());
      CHECK(block.Run({static_cast<unsigned>(x), static_cast<unsigned>(y), 0}, [&] {
        kKernel(a.values(), shape.k, b.values(), output, {shape.m, shape.n, shape.k});
      }) == std::set<std::string>{});
    }
  }
  for (size_t i = 0; i < expected.size(); ++i)
    if (!IsFp32(end)) fp32[i] = __builtin_bit_cast(float, static_cast<uint32_t>(halves[i]));
  size_t n_differing = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    n_differing += __builtin_bit_cast(uint32_t, fp32[i]) != expected[i];
  INFO("end " << static_cast<int>(end) << ", n " << shape.n << ", guard " << guard);
  CHECK(n_differing == 0);
}

TEST_CASE("ends: outputs are those of the CPU's functions, and nothing else is written") {
  for (const GemmEnd end : {GemmEnd::kSums, GemmEnd::kFp32, GemmEnd::kBf16, GemmEnd::kAdd,
                            GemmEnd::kGelu, GemmEnd::kSwiGlu, GemmEnd::kGeGlu}) {
    for (const int guard : {0, 3, 8}) {
      for (const bool has_bias : {false, true}) {
        const int n = IsGated(end) ? 80 : guard == 8 ? 75 : 66;
        const Prediction shape{Distribution::kNormal, 41, 21, n, 64};
        CheckEnd<GemmMmaKernel>(end, shape, guard, has_bias, kBlockColumns, 16, kWarps * 32, 0);
        CheckEnd<GemmFewMmaKernel<8>>(end, shape, guard, has_bias, kWeightRows, 8, kFewThreads,
                                      kFewSharedBytes<8>);
        CheckEnd<GemmFewMmaKernel<32>>(end, shape, guard, has_bias, kWeightRows, 32, kFewThreads,
                                       kFewSharedBytes<32>);
        CheckEnd<GemmWgmmaKernel<64>>(end, shape, guard, has_bias, 64, kTileM, kThreads,
                                      kSharedBytes<64>);
      }
    }
  }
}

// Loads the piece of another thread: with a barrier, without one, or before the copy has ended.
void LoadOfAnother(const uint16_t* a, bool has_wait, bool has_barrier) {
  const uint32_t place = SharedBase();
  CopyPiece(place + threadIdx.x * 16, a + threadIdx.x * 8, true);
  CommitCopies();
  if (has_wait) WaitForCopies<0>();
  if (has_barrier) __syncthreads();
  LoadShared(place + (threadIdx.x + 1) % 32 * 16);
}

TEST_CASE("the emulation notices loads that come too early") {
  Matrix a({Distribution::kNormal, 5, 1, 1, 256}, 1, 1);
  const auto complaints = [&](bool has_wait, bool has_barrier) {
    EmulatedBlock block(32, 512, 3);
    block.AllowSource(a.span());
    return block.Run({}, [&] { LoadOfAnother(a.values(), has_wait, has_barrier); });
  };
  using Complaints = std::set<std::string>;
  CHECK(complaints(true, true) == Complaints{});
  CHECK(complaints(true, false).contains("a load of what no barrier has passed"));
  CHECK(complaints(false, true) ==
        Complaints{"a load of what no copy has brought, or a later one overwrites"});
}

// One tile of (64, 8), with a fault.
enum class Fault {
  kNone,
  kNoWaitForCopies,
  kNotShown,
  kNoBarrier,
  kNoFence,
  kSumsTouched,
  kNoWaitForSums,
  kOverwritten,
  kNotSwizzled,
  kBeyondShared,
  kBeyondMatrix,
  kAbsentThread,
};

template <Fault kFault>
void OneTile(const uint16_t* a, const uint16_t* b, float* c, GemmShape shape) {
  constexpr auto has = [](Fault fault) { return kFault == fault; };
  if (has(Fault::kAbsentThread) && threadIdx.x == 5) return;
  const uint32_t tile = (SharedBase() + 1023u) & ~1023u;
  const uint32_t b_tile = tile + 64 * kTileRowBytes + (has(Fault::kBeyondShared) ? 1024 : 0);
  CopyTile<64, 128>(tile, a, 0, has(Fault::kBeyondMatrix) ? 65 : shape.m, shape.k,
                    has(Fault::kBeyondMatrix) ? 64 : 0);
  CopyTile<8, 128>(b_tile, b, 0, shape.n, shape.k, 0);
  CommitCopies();
  if (!has(Fault::kNoWaitForCopies)) WaitForCopies<0>();
  if (!has(Fault::kNotShown)) ShowToWgmma();
  if (!has(Fault::kNoBarrier)) __syncthreads();
  float sums[4] = {};
  if (!has(Fault::kNoFence)) WarpgroupFence();
  for (int step = 0; step < 4; ++step) {
    const uint64_t unswizzled = has(Fault::kNotSwizzled) ? uint64_t{1} << 62 : 0;
    Wgmma<8>::Add(sums, SwizzledTile(tile + step * 32) ^ unswizzled,
                  SwizzledTile(b_tile + step * 32) ^ unswizzled);
    if (has(Fault::kSumsTouched)) sums[step] += 1.0f;
  }
  WarpgroupCommit();
  if (has(Fault::kOverwritten)) CopyTile<8, 128>(b_tile, b, 0, shape.n, shape.k, 0);
  if (!has(Fault::kNoWaitForSums)) WarpgroupWait<0>();
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  for (int i = 0; i < 4; ++i) c[(row + 8 * (i / 2)) * shape.n + lane % 4 * 2 + i % 2] = sums[i];
}

template <Fault kFault>
Product RunFault() {
  return RunGrid({Distribution::kNormal, 5, 64, 8, 64}, 8, 64, 128, 72 * kTileRowBytes + 1024, 9,
                 OneTile<kFault>);
}

TEST_CASE("the emulation notices what a kernel lacks") {
  const auto complaint = [](const Product& product) {
    return product.complaints.empty() ? "" : *product.complaints.begin();
  };
  const Product good = RunFault<Fault::kNone>();
  CHECK(complaint(good) == "");
  CHECK(good.bits == PredictedProduct({Distribution::kNormal, 5, 64, 8, 64}));

  const std::string not_there = "wgmma reads what no copy has brought, or a later one overwrites";
  CHECK(complaint(RunFault<Fault::kNoWaitForCopies>()) == not_there);
  CHECK(complaint(RunFault<Fault::kNotShown>()) ==
        "wgmma reads what was not shown by fence.proxy.async");
  CHECK(complaint(RunFault<Fault::kNoBarrier>()) == "wgmma reads what no barrier has passed");
  CHECK(complaint(RunFault<Fault::kNoFence>()) ==
        "wgmma without wgmma.fence after its sums were touched");
  CHECK(complaint(RunFault<Fault::kSumsTouched>()) ==
        "sums were touched while matrix operations were under way");
  CHECK(complaint(RunFault<Fault::kNoWaitForSums>()) ==
        "a thread ended with matrix operations under way");
  CHECK(complaint(RunFault<Fault::kOverwritten>()) == not_there);
  CHECK(complaint(RunFault<Fault::kNotSwizzled>()) == "a tile that is not swizzled in 128 bytes");
  CHECK(complaint(RunFault<Fault::kBeyondShared>()) == "an address beyond the shared memory");
  CHECK(complaint(RunFault<Fault::kBeyondMatrix>()) == "a copy from outside of its matrix");
  CHECK(complaint(RunFault<Fault::kAbsentThread>()) == "threads wait for threads that do not come");
}

}  // namespace
}  // namespace baton
