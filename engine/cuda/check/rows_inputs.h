// Inputs of rows.h for checks on a GPU and tests on an emulated block, and what comes out for
// heads. Memory of the host. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/cuda/check/inputs.h"
#include "engine/cuda/check/rows_reference.h"

namespace baton {
namespace {

constexpr uint16_t kPoison = 0xffff;

inline int RoundUp64(int n) { return (n + 63) / 64 * 64; }

// Rows of bf16, zeros behind `width`. Some rows have NaN, infinities, zeros of both signs or
// nothing but denormals.
inline std::vector<uint16_t> RandomRows(int n, int width, int stride, uint32_t seed) {
  std::vector<uint16_t> rows(static_cast<size_t>(n) * stride);
  for (int row = 0; row < n; ++row) {
    const auto distribution = static_cast<Distribution>(row % kDistributions);
    uint16_t* const values = &rows[static_cast<size_t>(row) * stride];
    for (int i = 0; i < width; ++i) values[i] = InputAt(distribution, seed, 1, row, i, width);
    uint16_t& at = values[Mix(seed + row) % width];
    if (row % 16 == 5) at = 0xffc1;
    if (row % 16 == 6) at = 0x7f80;
    if (row % 16 == 7) at = 0xff80;
    if (row % 16 == 8) std::fill_n(values, width, uint16_t{0x8000});
    if (row % 16 == 9)
      for (int i = 0; i < width; ++i) values[i] = values[i] & 0x807f;
  }
  return rows;
}

inline std::vector<float> RandomFloats(int n, float around, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(around, 1.0f);
  std::vector<float> values(n);
  for (float& value : values) value = Bf16ToFloat(FloatToBf16(normal(random)));
  return values;
}

// A block of metadata as device/metadata_block.h has it, whose planes do not lie apart.
struct HostBlock {
  std::vector<int32_t> tokens, positions, piece_begin{0}, page_begin{0}, pages, logit_rows,
      scored_rows, ropes;

  std::vector<int32_t> Joined() const {
    std::vector<int32_t> all = {
        static_cast<int32_t>(tokens.size()),      static_cast<int32_t>(ropes.size()),
        static_cast<int32_t>(pages.size()),       static_cast<int32_t>(logit_rows.size()),
        static_cast<int32_t>(scored_rows.size()), 0};
    for (const auto* part : {&tokens, &positions, &piece_begin, &page_begin, &pages, &logit_rows,
                             &scored_rows, &ropes})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }
  std::vector<int32_t> Pieces() const {
    std::vector<int32_t> pieces;
    for (size_t piece = 0; piece < ropes.size(); ++piece)
      pieces.resize(static_cast<size_t>(piece_begin[piece + 1]), static_cast<int32_t>(piece));
    return pieces;
  }
};

// Pieces of at most max_rows rows; pages are taken from [0, n_pages), each once, and those of the
// past may be trimmed.
inline HostBlock RandomBlock(int n_pieces, int max_rows, int page_tokens, int max_position,
                             int* n_pages, std::mt19937& random) {
  HostBlock block;
  for (int piece = 0; piece < n_pieces; ++piece) {
    const int rows = 1 + static_cast<int>(random() % max_rows);
    const int past = static_cast<int>(random() % (max_position - rows));
    for (int row = 0; row < rows; ++row) {
      block.tokens.push_back(random() % 3 == 0 ? -1 - static_cast<int32_t>(random() % 64)
                                               : static_cast<int32_t>(random() % 1000));
      block.positions.push_back(past + row);
    }
    block.piece_begin.push_back(static_cast<int32_t>(block.tokens.size()));
    for (int page = 0; page <= (past + rows - 1) / page_tokens; ++page) block.pages.push_back(0);
    block.page_begin.push_back(static_cast<int32_t>(block.pages.size()));
    block.ropes.push_back(static_cast<int32_t>(random() % 2));
  }
  *n_pages = static_cast<int>(block.pages.size());
  for (int page = 0; page < *n_pages; ++page) block.pages[page] = page;
  std::shuffle(block.pages.begin(), block.pages.end(), random);
  for (int32_t& page : block.pages)
    if (random() % 4 == 0) page = -2 - page;
  for (int row = 0; row < static_cast<int>(block.tokens.size()); ++row) {
    if (random() % 2 == 0) block.logit_rows.push_back(row);
    if (random() % 3 == 0) block.scored_rows.push_back(row);
  }
  return block;
}

struct HeadShape {
  int n_heads, n_kv_heads, head_dim, rotary_dim, row;
};

// Rows of some pieces, the first of which is no row of qkv, and where their heads belong.
struct HeadsExample {
  static constexpr int kPositions = 400;
  static constexpr float kEps = 1e-6f;

  HeadsExample(const HeadShape& heads, bool normed, int tokens, uint32_t seed, int max_rows = 20)
      : shape(heads), is_normed(normed), page_tokens(tokens) {
    std::mt19937 random(seed);
    int n_pages = 0;
    block = RandomBlock(6, max_rows, page_tokens, kPositions, &n_pages, random);
    pieces = block.Pieces();
    stride = RoundUp64(n_all() * shape.head_dim);
    qkv = RandomRows(n_rows(), n_all() * shape.head_dim, stride, ++seed);
    for (std::vector<float>* table : {&cos[0], &cos[1], &sin[0], &sin[1]})
      *table = RandomFloats(kPositions * shape.rotary_dim / 2 + 1, 0, ++seed);
    q_norm = RandomFloats(shape.head_dim, 1, ++seed);
    k_norm = RandomFloats(shape.head_dim, 1, ++seed);
    page_stride = int64_t{2} * shape.n_kv_heads * page_tokens * shape.row + 64;
    kv.assign(static_cast<size_t>(n_pages * page_stride), kPoison);
    q.assign(static_cast<size_t>(n_rows()) * q_stride(), kPoison);
  }

  int n_all() const { return shape.n_heads + 2 * shape.n_kv_heads; }
  int n_rows() const { return static_cast<int>(block.tokens.size()) - from; }
  int q_stride() const { return shape.n_heads * shape.row; }

  // Writes the heads of a row to q and kv. Needs the numerics MXCSR.
  void Expect(int row) {
    const int piece = pieces[from + row], position = block.positions[from + row];
    const int rope = block.ropes[piece], d = shape.head_dim;
    const int32_t entry = block.pages[block.page_begin[piece] + position / page_tokens];
    const int64_t page = entry >= 0 ? entry : -2 - entry;
    const size_t turn = size_t(position) * shape.rotary_dim / 2;
    for (int head = 0; head < n_all(); ++head) {
      const uint16_t* const x = &qkv[size_t(row) * stride + head * d];
      const int list = head - shape.n_heads;  // of keys, then of values
      std::vector<uint16_t> values(x, x + d);
      if (list < shape.n_kv_heads) {
        const float* const norm = list < 0 ? q_norm.data() : k_norm.data();
        values = HeadReference(x, d, shape.rotary_dim, is_normed ? norm : nullptr, kEps,
                               &cos[rope][turn], &sin[rope][turn]);
      }
      values.resize(static_cast<size_t>(shape.row));
      uint16_t* const to =
          list < 0 ? &q[size_t(row) * q_stride() + head * shape.row]
                   : &kv[page * page_stride +
                         (int64_t{list} * page_tokens + position % page_tokens) * shape.row];
      std::copy(values.begin(), values.end(), to);
    }
  }

  HeadShape shape;
  bool is_normed;
  int page_tokens;
  int from = 1, stride = 0;
  int64_t page_stride = 0;  // values
  HostBlock block;
  std::vector<int32_t> pieces;
  std::vector<uint16_t> qkv, q, kv;
  std::vector<float> cos[2], sin[2], q_norm, k_norm;
};

}  // namespace
}  // namespace baton
