// How linear layers of few rows are cut into items (gemm_items.h).
#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/cpu/linear/gemm_items.h"
#include "tests/engine/cpu/kernel_paths.h"
#include "tests/engine/cpu/linear_problem.h"

namespace baton {
namespace {

TEST_CASE("items cover a layer's blocks in order, and each member's last one is short") {
  for (const auto& [blocks, short_blocks] :
       {std::pair<int64_t, int64_t>{16, 4}, {32, 8}, {6, 2}, {8, 8}}) {
    for (int64_t members = 1; members <= 5; ++members) {
      for (int64_t n_blocks = 0; n_blocks <= 200; ++n_blocks) {
        INFO("items of " << blocks << " and " << short_blocks << ", " << members << " members, "
                         << n_blocks << " blocks");
        LinearJob job;
        job.n_blocks = n_blocks;
        job.members = job.item_step = members;
        const ItemCut items(job, blocks, short_blocks);
        int64_t covered = 0;
        for (int64_t i = 0; i < items.count(); ++i) {
          const Item item = items.At(i);
          REQUIRE(item.first == covered);
          const bool is_last = i + members >= items.count();
          REQUIRE((item.blocks >= 1 && item.blocks <= (is_last ? short_blocks : blocks)));
          REQUIRE(is_last == (item.next >= n_blocks));
          if (!is_last) REQUIRE(item.next == items.At(i + members).first);
          covered += item.blocks;
        }
        REQUIRE(covered == n_blocks);
      }
    }
  }
}

TEST_CASE("layers with long and short items give the bits of the reference on every path") {
  // 67 and 131 blocks: long items, short ones, and one that lacks blocks.
  std::vector<KernelPath> paths = LinearPaths();
  uint32_t seed = 40;
  for (const WeightFormat& format :
       {WeightFormat{}, WeightFormat{WeightType::kInt8, 0}, WeightFormat{WeightType::kInt4, 64}}) {
    for (const auto& [rows, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 67 * 16, 64},
                                     {1, 67 * 16, 1056},
                                     {1, 131 * 16 - 5, 64},
                                     {8, 131 * 16 - 5, 64},
                                     {20, 67 * 16, 64},
                                     {40, 67 * 16, 64}}) {
      Shape shape;
      shape.format = format;
      shape.rows = rows;
      shape.n = n;
      shape.k = k;
      LinearProblem problem(shape, Values::kNormal, ++seed);
      const std::vector<uint32_t> expected = problem.Expected();
      for (int threads = 1; threads <= 3; ++threads) {
        ComputePool pool(threads, 0);
        for (KernelPath& path : paths) {
          INFO(path.name << " " << format.Name() << " rows " << rows << " n " << n << " k " << k
                         << " threads " << threads);
          REQUIRE((problem.Run(*path.kernels.linear, pool) == expected));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
