// The next block of a slice as its inflow arrives.
#include "prefill_worker/slice_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <utility>
#include <vector>

namespace baton {
namespace {

constexpr auto kProject = SliceBlock::Kind::kProject;
constexpr auto kAttend = SliceBlock::Kind::kAttend;
constexpr auto kFinish = SliceBlock::Kind::kFinish;

// Returns all blocks that can run now.
std::vector<SliceBlock> RunOn(SliceRun* run, int max_rows, const InflowProgress& inflow) {
  std::vector<SliceBlock> blocks;
  while (const auto block = run->Next(max_rows, inflow)) {
    blocks.push_back(*block);
    run->Computed(*block);
  }
  return blocks;
}

TEST_CASE("a first head projects and finishes layer by layer, and only projects the last") {
  SliceRun run({.n_layers = 3, .n_rows = 5});
  REQUIRE(run.remaining() == 5);
  REQUIRE(RunOn(&run, 2, {}) == std::vector<SliceBlock>{{kProject, 0, 0, 2},
                                                        {kProject, 0, 2, 4},
                                                        {kProject, 0, 4, 5},
                                                        {kFinish, 0, 0, 2},
                                                        {kFinish, 0, 2, 4},
                                                        {kFinish, 0, 4, 5},
                                                        {kProject, 1, 0, 2},
                                                        {kProject, 1, 2, 4},
                                                        {kProject, 1, 4, 5},
                                                        {kFinish, 1, 0, 2},
                                                        {kFinish, 1, 2, 4},
                                                        {kFinish, 1, 4, 5},
                                                        {kProject, 2, 0, 2},
                                                        {kProject, 2, 2, 4},
                                                        {kProject, 2, 4, 5}});
  REQUIRE(run.done());
  REQUIRE(run.remaining() == 0);
  REQUIRE(run.projected_layers() == 3);
}

TEST_CASE("a tail finishes the last row only of its last layer") {
  for (const int n_layers : {1, 2}) {
    SliceRun run({.n_layers = n_layers, .n_rows = 4, .wants_logits = true});
    const std::vector<SliceBlock> blocks = RunOn(&run, 4, {});
    REQUIRE(blocks.size() == 2u * static_cast<unsigned>(n_layers));
    REQUIRE(blocks.back() == SliceBlock{kFinish, n_layers - 1, 3, 4});
    REQUIRE(run.done());
  }
}

// Returns the rows of the blocks of one layer's projection.
std::vector<int> RowsOfBlocks(int n_rows, int max_rows) {
  SliceRun run({.n_layers = 1, .n_rows = n_rows});
  std::vector<int> rows;
  for (const SliceBlock& block : RunOn(&run, max_rows, {})) rows.push_back(block.to - block.from);
  return rows;
}

TEST_CASE("blocks have equally many rows, in whole tiles, and are as few as can be") {
  using Rows = std::vector<int>;
  REQUIRE(RowsOfBlocks(2112, 512) == Rows{448, 416, 416, 416, 416});
  REQUIRE(RowsOfBlocks(576, 512) == Rows{288, 288});
  REQUIRE(RowsOfBlocks(513, 512) == Rows{288, 225});
  REQUIRE(RowsOfBlocks(1024, 512) == Rows{512, 512});
  REQUIRE(RowsOfBlocks(512, 512) == Rows{512});
  REQUIRE(RowsOfBlocks(100, 60) == Rows{60, 40});  // 50, in whole tiles 64, are too many
  for (int n_rows = 1; n_rows < 700; n_rows += 7)
    for (const int max_rows : {1, 5, 32, 100, 512}) {
      const Rows rows = RowsOfBlocks(n_rows, max_rows);
      REQUIRE(std::accumulate(rows.begin(), rows.end(), 0) == n_rows);
      REQUIRE(*std::max_element(rows.begin(), rows.end()) <= max_rows);
      REQUIRE(static_cast<int>(rows.size()) == (n_rows + max_rows - 1) / max_rows);
    }
}

TEST_CASE("a turn that leaves room for fewer rows cuts the rest again") {
  SliceRun run({.n_layers = 1, .n_rows = 2112});
  for (const auto& [max_rows, to] :
       {std::pair(512, 448), {64, 512}, {512, 928}, {512, 1344}, {512, 1728}, {512, 2112}}) {
    const SliceBlock block = *run.Next(max_rows, {});
    REQUIRE(block.to == to);
    run.Computed(block);
  }
  REQUIRE(run.done());
}

TEST_CASE("a layer is finished when that plane of the inflow is there") {
  SliceRun run(
      {.n_layers = 2, .n_rows = 4, .wants_logits = true, .inflow_pages = 4, .page_tokens = 4});
  REQUIRE(RunOn(&run, 4, {}) == std::vector<SliceBlock>{{kProject, 0, 0, 4}});
  REQUIRE(run.projected_layers() == 1);
  REQUIRE(RunOn(&run, 4, {0, 3}).empty());
  REQUIRE(RunOn(&run, 3, {1, 0}) ==
          std::vector<SliceBlock>{
              {kFinish, 0, 0, 3}, {kFinish, 0, 3, 4}, {kProject, 1, 0, 3}, {kProject, 1, 3, 4}});
  REQUIRE(run.remaining() == 2);
  REQUIRE(RunOn(&run, 3, {1, 3}).empty());
  REQUIRE(RunOn(&run, 3, {2, 0}) == std::vector<SliceBlock>{{kFinish, 1, 3, 4}});
  REQUIRE(run.done());
}

TEST_CASE("streaming: all rows meet the whole segments that are there, ascending") {
  SliceRun run({.n_layers = 2,
                .n_rows = 4,
                .wants_logits = true,
                .inflow_pages = 10,
                .page_tokens = 4,
                .segment_keys = 8});
  REQUIRE(RunOn(&run, 3, {0, 1}) ==
          std::vector<SliceBlock>{{kProject, 0, 0, 3}, {kProject, 0, 3, 4}});
  REQUIRE(RunOn(&run, 3, {0, 3}) ==
          std::vector<SliceBlock>{{kAttend, 0, 0, 3, 8}, {kAttend, 0, 3, 4, 8}});
  REQUIRE(RunOn(&run, 3, {0, 3}).empty());
  // Cells that arrive during an attention round wait for the next round; a plane that is present
  // does not wait.
  const SliceBlock block = *run.Next(3, {0, 5});
  REQUIRE(block == SliceBlock{kAttend, 0, 0, 3, 16});
  run.Computed(block);
  REQUIRE(*run.Next(3, {0, 9}) == SliceBlock{kAttend, 0, 3, 4, 16});
  REQUIRE(RunOn(&run, 3, {1, 4}) == std::vector<SliceBlock>{{kFinish, 0, 0, 3},
                                                            {kFinish, 0, 3, 4},
                                                            {kProject, 1, 0, 3},
                                                            {kProject, 1, 3, 4},
                                                            {kAttend, 1, 3, 4, 16}});
  REQUIRE(RunOn(&run, 3, {2, 0}) == std::vector<SliceBlock>{{kFinish, 1, 3, 4}});
  REQUIRE(run.done());
}

}  // namespace
}  // namespace baton
