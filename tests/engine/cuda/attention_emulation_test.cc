// The attention kernels on an emulated block of threads: outputs are those of a reference in fp64,
// and a row has the same bits alone, in chunks, at any split of its segments and at any order of
// threads and copies. 2^x is the host's, so the bits are not a GPU's.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "engine/cuda/check/inputs.h"
#include "engine/numerics/bf16.h"
// mma.cuh is the emulated one: the include path has tests/engine/cuda/emulated first.
#include "engine/cuda/mma.cuh"
// The kernels include it.
#include "engine/cuda/attention_chunk.cuh"
#include "engine/cuda/attention_row.cuh"
#include "engine/cuda/attention_warpgroup.cuh"

namespace baton {
namespace {

struct Shape {
  int row, n_heads, n_kv_heads, page_tokens, window;
};
struct Piece {
  int sequence, position, rows;
};

// bf16 at an address that 16 divides, as those of a GPU are.
class Values {
 public:
  explicit Values(int64_t n) : values_(static_cast<size_t>(n) + 8, 0xffff) {}
  uint16_t* get() {
    return reinterpret_cast<uint16_t*>((reinterpret_cast<uintptr_t>(values_.data()) + 15) & ~15ul);
  }
  std::span<uint16_t> span() { return {get(), values_.size() - 8}; }

 private:
  std::vector<uint16_t> values_;
};

// How a step is computed; none of it changes bits.
struct Way {
  int chunk_rows = 64;  // M-rows of a block: 64 or 128
  bool is_by_warpgroups = false;
  int n_splits = 1, n_slots = 0, n_shares = 100;
  bool has_more_slots = true;
  uint32_t seed = 1;
};

// Sequences of one shape, their pages in a random order, and queries.
class Example {
 public:
  Example(Shape shape, std::vector<Piece> pieces, uint32_t seed)
      : shape_(shape), pieces_(std::move(pieces)), seed_(seed) {
    const int64_t plane = int64_t{2} * shape.n_kv_heads * shape.page_tokens * shape.row;
    int n_pages = 0;
    for (const Piece& piece : pieces_) {
      n_rows_ += piece.rows;
      n_pages += (piece.position + piece.rows + shape.page_tokens - 1) / shape.page_tokens;
    }
    std::vector<int32_t> ids(n_pages);
    std::iota(ids.begin(), ids.end(), 1);  // page 0 is NaN
    std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
    memory_ = std::make_unique<Values>((n_pages + 1) * plane);
    for (const Piece& piece : pieces_) {
      std::vector<int32_t>& table = tables_.emplace_back();
      const int first = FirstKey(shape.window, piece.position);
      const int n = (piece.position + piece.rows + shape.page_tokens - 1) / shape.page_tokens;
      for (int i = 0; i < n; ++i) {
        table.push_back(i < first / shape.page_tokens ? -1 : ids.back());
        if (table.back() < 0) continue;
        ids.pop_back();
        uint16_t* at = memory_->get() + table.back() * plane;
        for (const bool is_value : {false, true})
          for (int head = 0; head < shape.n_kv_heads; ++head)
            for (int key = 0; key < shape.page_tokens; ++key)
              for (int column = 0; column < shape.row; ++column)
                *at++ = Of(piece.sequence, is_value, head, i * shape.page_tokens + key, column);
      }
    }
    q_ = std::make_unique<Values>(int64_t{n_rows_} * stride());
    for (int i = 0; i < n_rows_ * stride(); ++i)
      q_->get()[i] = InputAt(Distribution::kNormal, seed, 999, 0, i, n_rows_ * stride());
  }

  // Computes all rows in launches of at most `rows_of_launch` rows. pieces: of the same rows.
  template <int kRow>
  std::vector<uint16_t> Compute(const std::vector<Piece>& pieces, int rows_of_launch, Way way) {
    const std::vector<int32_t> block = BlockOf(pieces);
    Values out(int64_t{n_rows_} * stride());
    for (int from = 0; from < n_rows_; from += rows_of_launch) {
      const int to = std::min(from + rows_of_launch, n_rows_);
      AttentionPass pass = PassOf(block, from, to, way);
      pass.q = q_->get() + from * stride();
      pass.out = out.get() + from * stride();
      const int n_blocks = shape_.n_kv_heads * pass.head_blocks;
      std::vector<int32_t> counts(1), finished(n_rows_ * n_blocks, -1);
      std::vector<AttentionItem> chunks(to - from), rows(to - from);
      std::vector<float> partials(way.n_slots * n_blocks * pass.heads * (kRow + 4), NAN);
      pass.lists = {counts.data(),   chunks.data(),   rows.data(),
                    finished.data(), partials.data(), way.n_slots};
      Run(kListThreads, kListSharedBytes, &way, {}, [&] { ListKernel(pass); });
      CHECK(counts[0] <= to - from);
      const int n_layers = way.n_splits > 1 ? 2 : 1;  // counters of the first are used again
      for (int layer = 0; layer < n_layers; ++layer)
        for (int y = 0; y < n_blocks; ++y) {
          for (int x = 0; layer == 0 && x < counts[0]; ++x) {
            const ThreadIndex at{static_cast<unsigned>(x), static_cast<unsigned>(y), 0};
            if (way.is_by_warpgroups)
              RunWarpgroups<kRow>(pass, &way, at);
            else if (way.chunk_rows == 64)
              Run(128, kChunkSharedBytes<kRow, 4>, &way, at,
                  [&] { AttendChunkKernel<kRow, 4>(pass); });
            else
              Run(256, kChunkSharedBytes<kRow, 8>, &way, at,
                  [&] { AttendChunkKernel<kRow, 8>(pass); });
          }
          for (int x = 0; x < to - from; ++x)
            for (int z = 0; z < way.n_splits; ++z)
              RunRow<kRow>(pass, &way,
                           {static_cast<unsigned>(x), static_cast<unsigned>(z * n_blocks + y), 0});
        }
    }
    return {out.span().begin(), out.span().end()};
  }

  // Returns the greatest |out - reference| / |reference| of a head of a row.
  double ErrorOf(const std::vector<uint16_t>& out) const {
    double worst = 0;
    int at = 0;
    for (const Piece& piece : pieces_)
      for (int i = 0; i < piece.rows; ++i, ++at)
        for (int head = 0; head < shape_.n_heads; ++head)
          worst = std::max(worst, ErrorOf(out, piece.sequence, piece.position + i, at, head));
    return worst;
  }

  // Pieces of the same rows, of at most `rows` rows.
  std::vector<Piece> Cut(int rows) const {
    std::vector<Piece> cut;
    for (const Piece& piece : pieces_)
      for (int i = 0; i < piece.rows; i += rows)
        cut.push_back({piece.sequence, piece.position + i, std::min(rows, piece.rows - i)});
    return cut;
  }
  const std::vector<Piece>& pieces() const { return pieces_; }
  int n_rows() const { return n_rows_; }

 private:
  int stride() const { return shape_.n_heads * shape_.row; }
  double scale() const { return 1.5 / std::sqrt(shape_.row); }
  uint16_t Of(int sequence, bool is_value, int head, int key, int column) const {
    return InputAt(Distribution::kNormal, seed_, 2 * sequence + (is_value ? 1 : 0), key,
                   head * shape_.row + column, int64_t{shape_.n_kv_heads} * shape_.row);
  }

  std::vector<int32_t> BlockOf(const std::vector<Piece>& pieces) const {
    std::vector<int32_t> positions, piece_begin = {0}, page_begin = {0}, entries;
    for (const Piece& piece : pieces) {
      for (int i = 0; i < piece.rows; ++i) positions.push_back(piece.position + i);
      const auto& table = tables_[piece.sequence];
      entries.insert(entries.end(), table.begin(), table.end());
      piece_begin.push_back(static_cast<int32_t>(positions.size()));
      page_begin.push_back(static_cast<int32_t>(entries.size()));
    }
    std::vector<int32_t> block = {
        n_rows_, static_cast<int32_t>(pieces.size()), static_cast<int32_t>(entries.size()), 0, 0,
        0};
    block.resize(block.size() + positions.size());  // tokens
    for (const auto* numbers : {&positions, &piece_begin, &page_begin, &entries})
      block.insert(block.end(), numbers->begin(), numbers->end());
    block.resize(block.size() + pieces.size());  // ropes
    return block;
  }

  AttentionPass PassOf(const std::vector<int32_t>& block, int from, int to, const Way& way) const {
    AttentionPass pass = {};
    pass.block = block.data();
    pass.pages = reinterpret_cast<const uint8_t*>(memory_->get());
    pass.page_stride = int64_t{4} * shape_.n_kv_heads * shape_.page_tokens * shape_.row;
    pass.page_shift = shape_.page_tokens == 16 ? 4 : shape_.page_tokens == 32 ? 5 : 6;
    pass.from = from;
    pass.to = to;
    pass.n_heads = shape_.n_heads;
    pass.n_kv_heads = shape_.n_kv_heads;
    pass.window = shape_.window;
    pass.group = shape_.n_heads / shape_.n_kv_heads;
    pass.head_blocks = (pass.group + kMaxHeads - 1) / kMaxHeads;
    pass.heads = (pass.group + pass.head_blocks - 1) / pass.head_blocks;
    pass.n_splits = way.n_splits;
    pass.n_shares = way.n_shares;
    pass.chunk_rows = way.chunk_rows;
    pass.factor = static_cast<float>(scale() * 1.4426950408889634074);
    return pass;
  }

  template <int kRow>
  void RunWarpgroups(const AttentionPass& pass, Way* way, ThreadIndex at) {
    const TensorMap map = EmulatedPages(pass.pages, pass.page_stride, shape_.page_tokens,
                                        2 * shape_.n_kv_heads, kRow);
    if (way->chunk_rows == 64)
      Run(WarpgroupTile<kRow, 1>::kThreads, WarpgroupTile<kRow, 1>::kSharedBytes, way, at,
          [&] { AttendWgmmaKernel<kRow, 1>(map, pass); });
    else
      Run(WarpgroupTile<kRow, 2>::kThreads, WarpgroupTile<kRow, 2>::kSharedBytes, way, at,
          [&] { AttendWgmmaKernel<kRow, 2>(map, pass); });
  }

  template <int kRow>
  void RunRow(const AttentionPass& pass, Way* way, ThreadIndex at) {
    if (way->has_more_slots)
      Run(kRowThreads, kRowSharedBytes<kRow, 6>, way, at, [&] { AttendRowKernel<kRow, 6>(pass); });
    else
      Run(kRowThreads, kRowSharedBytes<kRow, 3>, way, at, [&] { AttendRowKernel<kRow, 3>(pass); });
  }

  void Run(int n_threads, int shared_bytes, Way* way, ThreadIndex at,
           const std::function<void()>& kernel) {
    EmulatedBlock block(n_threads, shared_bytes, way->seed++);
    block.AllowSource(memory_->span());
    block.AllowSource(q_->span());
    CHECK(block.Run(at, kernel) == std::set<std::string>{});
  }

  double ErrorOf(const std::vector<uint16_t>& out, int sequence, int position, int at,
                 int head) const {
    const int kv_head = head / (shape_.n_heads / shape_.n_kv_heads);
    const int64_t first = (int64_t{at} * shape_.n_heads + head) * shape_.row;
    std::vector<double> scores, sums(shape_.row);
    const int begin = FirstKey(shape_.window, position);
    for (int key = begin; key <= position; ++key) {
      double score = 0;
      for (int c = 0; c < shape_.row; ++c)
        score += double{Bf16ToFloat(q_->get()[first + c])} *
                 Bf16ToFloat(Of(sequence, false, kv_head, key, c));
      scores.push_back(score * scale());
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double weight = 0, square = 0, difference = 0;
    for (int key = begin; key <= position; ++key) {
      const double p = std::exp(scores[key - begin] - max);
      weight += p;
      for (int c = 0; c < shape_.row; ++c)
        sums[c] += p * Bf16ToFloat(Of(sequence, true, kv_head, key, c));
    }
    for (int c = 0; c < shape_.row; ++c) {
      const double expected = sums[c] / weight, found = Bf16ToFloat(out[first + c]);
      square += expected * expected;
      difference += (found - expected) * (found - expected);
    }
    const double error = std::sqrt(difference / square);
    return std::isnan(error) ? INFINITY : error;
  }

  Shape shape_;
  std::vector<Piece> pieces_;
  uint32_t seed_;
  int n_rows_ = 0;
  std::vector<std::vector<int32_t>> tables_;
  std::unique_ptr<Values> memory_, q_;
};

template <int kRow>
void CheckAll(Shape shape, const std::vector<Piece>& pieces) {
  Example example(shape, pieces, 40);
  const int all = example.n_rows();
  const std::vector<uint16_t> expected = example.Compute<kRow>(pieces, all, {});
  CHECK(example.ErrorOf(expected) < 1e-2);
  const auto is_same = [&](const std::vector<Piece>& cut, int rows_of_launch, Way way) {
    return example.Compute<kRow>(cut, rows_of_launch, way) == expected;
  };
  CHECK(is_same(pieces, all, {.chunk_rows = 128, .seed = 100}));
  CHECK(is_same(pieces, all, {.is_by_warpgroups = true, .seed = 600}));
  CHECK(is_same(pieces, all, {.chunk_rows = 128, .is_by_warpgroups = true, .seed = 700}));
  CHECK(is_same(example.Cut(1), all, {.seed = 200}));
  CHECK(is_same(example.Cut(1), all,
                {.n_splits = 2, .n_slots = 100, .has_more_slots = false, .seed = 300}));
  CHECK(is_same(example.Cut(1), 2, {.n_splits = 7, .n_slots = 4, .n_shares = 2, .seed = 400}));
  CHECK(is_same(example.Cut(3), 5,
                {.is_by_warpgroups = true, .n_splits = 3, .n_slots = 3, .seed = 500}));
}

TEST_CASE("64 dims and one head of KV each") {
  CheckAll<64>({64, 2, 2, 16, 0}, {{0, 0, 1}, {1, 1150, 1}, {2, 510, 5}, {3, 0, 3}, {4, 127, 2}});
}
TEST_CASE("128 dims and four heads of a head of KV") {
  CheckAll<128>({128, 8, 2, 32, 0}, {{0, 128, 1}, {1, 500, 19}});
}
TEST_CASE("64 dims and a window over three tiles") {
  CheckAll<64>({64, 7, 1, 64, 300}, {{0, 900, 12}, {1, 1100, 1}, {2, 20, 3}});
}
TEST_CASE("128 dims and a window shorter than a tile") {
  CheckAll<128>({128, 2, 1, 16, 50}, {{0, 505, 40}, {1, 140, 1}});
}
TEST_CASE("64 dims and more heads of a head of KV than a block has") {
  CheckAll<64>({64, 23, 1, 16, 0}, {{0, 510, 9}, {1, 600, 1}});
}

}  // namespace
}  // namespace baton
