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
#include "engine/cuda/gemm_mma.cuh"
#include "engine/cuda/gemm_stream.cuh"
#include "engine/cuda/gemm_tma.cuh"
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
// How a kernel that stays is started: rows of boxes of both matrices, columns of boxes, most
// blocks.
struct Staying {
  void (*kernel)(TensorMap a_map, TensorMap b_map, GemmOutput output, GemmShape shape);
  int n_threads, shared_bytes, a_rows, b_rows, columns, n_blocks;
};
template <int kRows, int kWarps>
Staying Stream() {
  using Tile = StreamTile<kRows, kWarps>;
  return {GemmStreamMmaKernel<kRows, kWarps>,
          Tile::kThreads,
          Tile::kSharedBytes,
          kRows,
          Tile::kWeights,
          Tile::kDepth,
          3};
}
template <int kGroups, int kTileN>
Staying Tma() {
  using Tile = TmaTile<kGroups, kTileN>;
  return {GemmTmaWgmmaKernel<kGroups, kTileN>,
          Tile::kThreads,
          Tile::kSharedBytes,
          Tile::kRows,
          kTileN,
          1,
          2};
}

std::set<std::string> RunStaying(const Staying& staying, Matrix& a, Matrix& b,
                                 const GemmOutput& output, GemmShape shape, uint32_t seed) {
  const TensorMap a_map =
      EmulatedTensorMap(a.values(), shape.m, shape.k, shape.k, staying.a_rows, staying.columns);
  const TensorMap b_map =
      EmulatedTensorMap(b.values(), shape.n, shape.k, shape.k, staying.b_rows, staying.columns);
  const int n_tiles = ((shape.m + staying.a_rows - 1) / staying.a_rows) *
                      ((shape.n + staying.b_rows - 1) / staying.b_rows);
  const auto n_blocks = static_cast<unsigned>(std::min(n_tiles, staying.n_blocks));
  std::set<std::string> complaints;
  for (unsigned x = 0; x < n_blocks; ++x) {
    EmulatedBlock block(staying.n_threads, staying.shared_bytes, seed++);
    block.set_grid_size({n_blocks, 1, 1});
    complaints.merge(block.Run({x, 0, 0}, [&] { staying.kernel(a_map, b_map, output, shape); }));
  }
  return complaints;
}

template <auto kStaying>
Product ByStaying(const Prediction& shape, uint32_t seed) {
  Matrix a(shape, 1, shape.m), b(shape, 2, shape.n);
  std::vector<float> c(static_cast<size_t>(shape.m) * shape.n, __builtin_bit_cast(float, kPoison));
  Product product;
  product.complaints =
      RunStaying(kStaying(), a, b, SumsOf(c.data(), shape.n), {shape.m, shape.n, shape.k}, seed);
  for (const float value : c) product.bits.push_back(__builtin_bit_cast(uint32_t, value));
  return product;
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
TEST_CASE("stream 8/1: outputs have the predicted digests") { CheckAll(ByStaying<Stream<8, 1>>); }
TEST_CASE("stream 16/2: outputs have the predicted digests") { CheckAll(ByStaying<Stream<16, 2>>); }
TEST_CASE("stream 32/4: outputs have the predicted digests") { CheckAll(ByStaying<Stream<32, 4>>); }
TEST_CASE("tma 64 x 32: outputs have the predicted digests") { CheckAll(ByStaying<Tma<1, 32>>); }
TEST_CASE("tma 64 x 64: outputs have the predicted digests") { CheckAll(ByStaying<Tma<1, 64>>); }
TEST_CASE("tma 64 x 128: outputs have the predicted digests") { CheckAll(ByStaying<Tma<1, 128>>); }
TEST_CASE("tma 128 x 64: outputs have the predicted digests") { CheckAll(ByStaying<Tma<2, 64>>); }
TEST_CASE("tma 128 x 128: outputs have the predicted digests") { CheckAll(ByStaying<Tma<2, 128>>); }

TEST_CASE("one shape at several orders of threads and copies") {
  const Prediction shape{Distribution::kWide, 77, 70, 260, 320};
  const std::vector<uint32_t> expected = PredictedProduct(shape);
  for (const uint32_t seed : {1u, 2u, 3u}) {
    for (const auto multiply :
         {ByStaying<Tma<2, 256>>, ByStaying<Tma<2, 224>>, ByStaying<Tma<2, 192>>,
          ByStaying<Stream<8, 4>>, ByStaying<Stream<32, 2>>}) {
      const Product product = multiply(shape, seed);
      CHECK(product.complaints == std::set<std::string>{});
      CHECK(product.bits == expected);
    }
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
// `run` computes the product of both matrices into its output.
using Run = std::set<std::string> (*)(Matrix& a, Matrix& b, const GemmOutput& output,
                                      GemmShape shape);
void CheckEnd(GemmEnd end, Prediction shape, int guard, bool has_bias, Run run) {
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
  CHECK(run(a, b, output, {shape.m, shape.n, shape.k}) == std::set<std::string>{});
  for (size_t i = 0; i < expected.size(); ++i)
    if (!IsFp32(end)) fp32[i] = __builtin_bit_cast(float, static_cast<uint32_t>(halves[i]));
  size_t n_differing = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    n_differing += __builtin_bit_cast(uint32_t, fp32[i]) != expected[i];
  INFO("end " << static_cast<int>(end) << ", n " << shape.n << ", guard " << guard);
  CHECK(n_differing == 0);
}

template <auto kStaying>
std::set<std::string> RunEnds(Matrix& a, Matrix& b, const GemmOutput& output, GemmShape shape) {
  return RunStaying(kStaying(), a, b, output, shape, 5);
}

TEST_CASE("ends: outputs are those of the CPU's functions, and nothing else is written") {
  for (const GemmEnd end : {GemmEnd::kSums, GemmEnd::kFp32, GemmEnd::kBf16, GemmEnd::kAdd,
                            GemmEnd::kGelu, GemmEnd::kSwiGlu, GemmEnd::kGeGlu}) {
    for (const int guard : {0, 3, 8}) {
      for (const bool has_bias : {false, true}) {
        const int n = IsGated(end) ? guard == 8 ? 240 : 80 : guard == 8 ? 75 : 66;
        const Prediction shape{Distribution::kNormal, 41, 21, n, 64};
        CheckEnd(end, shape, guard, has_bias,
                 [](Matrix& a, Matrix& b, const GemmOutput& output, GemmShape gemm) {
                   std::set<std::string> complaints;
                   for (int y = 0; y < (gemm.m + 15) / 16; ++y) {
                     for (int x = 0; x < (gemm.n + kBlockColumns - 1) / kBlockColumns; ++x) {
                       EmulatedBlock block(kWarps * 32, 0, 5);
                       block.AllowSource(a.span());
                       block.AllowSource(b.span());
                       complaints.merge(block.Run(
                           {static_cast<unsigned>(x), static_cast<unsigned>(y), 0},
                           [&] { GemmMmaKernel(a.values(), gemm.k, b.values(), output, gemm); }));
                     }
                   }
                   return complaints;
                 });
        CheckEnd(end, shape, guard, has_bias, RunEnds<Stream<16, 2>>);
        CheckEnd(end, shape, guard, has_bias, RunEnds<Tma<1, 32>>);
        CheckEnd(end, shape, guard, has_bias, RunEnds<Tma<1, 64>>);
        CheckEnd(end, shape, guard, has_bias, RunEnds<Tma<1, 128>>);
        if (guard == 8) CheckEnd(end, shape, guard, has_bias, RunEnds<Tma<2, 224>>);
      }
    }
  }
}

// Checks that every gate in range has the activation of the host, whatever a reciprocal within 4
// units beside the nearest one is.
template <GemmEnd kEnd>
int64_t CountGates() {
  int64_t n_gates = 0, n_differing = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t magnitude = bits & 0x7fff;
    if (magnitude < kMinGate || magnitude >= kGateLimit<kEnd>) continue;
    ++n_gates;
    const float x = __builtin_bit_cast(float, bits << 16);
    const float expected = kEnd == GemmEnd::kSwiGlu ? Silu(x) : GeluTanh(x);
    const float d = DivisorInRange<kEnd>(x);
    const uint32_t nearest = __builtin_bit_cast(uint32_t, 1.0f / d);
    for (uint32_t i = 0; i < 9; ++i) {
      const float found = QuotientInRange(x, d, __builtin_bit_cast(float, nearest + i - 4));
      n_differing += __builtin_bit_cast(uint32_t, found) != __builtin_bit_cast(uint32_t, expected);
    }
  }
  CHECK(n_differing == 0);
  return n_gates;
}

TEST_CASE("gates in range have the host's activations") {
  CHECK(CountGates<GemmEnd::kSwiGlu>() == 2 * (0x42a0 - 0x3580));
  CHECK(CountGates<GemmEnd::kGeGlu>() == 2 * (0x4100 - 0x3580));
}

TEST_CASE("gated outputs of any two gates are the host's") {
  // Zeros, denormals, the ends of the range, values beyond it, infinities, NaN.
  constexpr uint32_t kValues[] = {0x0000, 0x8000, 0x0041, 0x3580, 0x357f, 0xb580, 0x3f80, 0xc040,
                                  0x40ff, 0x4100, 0x429f, 0x42a0, 0xc29f, 0xc2a0, 0xc2b0, 0xc2c0,
                                  0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc1};
  const auto number = [](uint32_t bits) { return __builtin_bit_cast(float, bits << 16); };
  const auto check = [&](GemmEnd end, uint32_t found, const uint32_t(&gates)[2], uint32_t up) {
    for (int i = 0; i < 2; ++i) {
      INFO("end " << static_cast<int>(end) << ", gate " << gates[i] << ", up " << up);
      CHECK((found >> (16 * i) & 0xffff) == GatedEndOf(end, number(gates[i]), number(up)));
    }
  };
  for (const uint32_t gate : kValues) {
    for (const uint32_t other : kValues) {
      for (const uint32_t up : {0x3f81u, 0xc000u, 0x0000u, 0x7f7fu, 0x7f80u, 0x7fc0u}) {
        const float gates[2] = {number(gate), number(other)}, ups[2] = {number(up), number(up)};
        check(GemmEnd::kSwiGlu, GatedPair<GemmEnd::kSwiGlu>(gates, ups), {gate, other}, up);
        check(GemmEnd::kGeGlu, GatedPair<GemmEnd::kGeGlu>(gates, ups), {gate, other}, up);
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
