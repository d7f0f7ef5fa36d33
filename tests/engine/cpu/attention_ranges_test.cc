// Attention in several calls over ranges of keys, and with a dense mask: the bits of one causal
// call, on every path and in every form of keys and values.
#include "tests/engine/cpu/attention_arena.h"

namespace baton {
namespace {

const std::vector<Shape> kShapes{{64, 2, 3, 32},
                                 {80, 1, 4, 16},
                                 {64, 2, 2, 64, 200},
                                 {64, 1, 3, 32, 700, 30.0},
                                 {96, 2, 2, 16, 0, 0, KvType::kInt8},
                                 {64, 2, 2, 32, 600, 0, KvType::kInt8},
                                 {96, 1, 6, 32, 0, 0, KvType::kBf16, 64},
                                 {96, 1, 6, 64, 0, 0, KvType::kInt8, 64}};

// Prefill rows on both sides of a segment's border, and decode rows.
const std::vector<int> kLengths{2300, 700, 90};
const std::vector<Piece> kPieces{{0, 1500, 1560}, {1, 500, 540}, {0, 2299, 2300}, {2, 0, 20}};

}  // namespace

TEST_CASE("ascending ranges of keys give the bits of one call") {
  std::mt19937 rng = FreshRng();
  const Shape shape = GENERATE(from_range(kShapes));
  AttentionArena arena(shape, kLengths, rng);
  for (const int threads : {1, 8}) {
    ComputePool pool(threads, 0);
    for (const KernelPath& path : AttentionPaths()) {
      INFO(Name(shape) << ", " << path.name << ", " << threads << " threads");
      const std::vector<bf16> once = arena.Run(*path.kernels.attention, pool, kPieces);
      for (const std::vector<int>& cuts :
           std::vector<std::vector<int>>{{1536}, {512, 1024, 1536, 2048}, {1024, 1024, 4096}}) {
        std::vector<size_t> order(cuts.size() + 1);
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        CHECK((arena.Run(*path.kernels.attention, pool, kPieces, {RangesOf(cuts, order)}) == once));
      }
    }
  }
}

// A ring attends first to the keys of its own rows, then to the keys that pass by.
TEST_CASE("ranges of keys in another order give nearly the same") {
  std::mt19937 rng = FreshRng();
  const Shape shape = GENERATE(from_range(kShapes));
  AttentionArena arena(shape, kLengths, rng);
  ComputePool pool(2, 0);
  const auto kernels = BestKernels();
  const std::vector<bf16> once = arena.Run(*kernels, pool, kPieces);
  const std::vector<bf16> rotated =
      arena.Run(*kernels, pool, kPieces, {RangesOf({512, 1024, 1536}, {2, 1, 0, 3})});
  double error = 0, norm = 0;
  for (size_t i = 0; i < once.size(); ++i) {
    error += std::pow(double{Bf16ToFloat(once[i])} - double{Bf16ToFloat(rotated[i])}, 2);
    norm += std::pow(double{Bf16ToFloat(once[i])}, 2);
  }
  INFO(Name(shape));
  CHECK(std::sqrt(error / norm) < 1e-3);  // a bf16 result is exact to 2^-9
}

TEST_CASE("a dense mask changes no bit") {
  std::mt19937 rng = FreshRng();
  const Shape shape = GENERATE(from_range(kShapes));
  AttentionArena arena(shape, kLengths, rng);
  for (const int threads : {1, 8}) {
    ComputePool pool(threads, 0);
    for (const KernelPath& path : AttentionPaths()) {
      INFO(Name(shape) << ", " << path.name << ", " << threads << " threads");
      const std::vector<bf16> causal = arena.Run(*path.kernels.attention, pool, kPieces);
      const auto dense = MakeDenseMaskAttentionOf(*path.attention_tile);
      for (const bool whole_tables : {false, true})
        CHECK((arena.Run(*dense, pool, kPieces, {{KeyRange{}}, whole_tables}) == causal));
      CHECK((arena.Run(*dense, pool, kPieces, {RangesOf({512, 1536}, {0, 1, 2}), true}) == causal));
    }
  }
}

}  // namespace baton
