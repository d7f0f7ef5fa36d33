// Prefetches for a whole segment of keys that few rows attend (attention_segment.h): its values,
// and then the keys of the segment that is attended next, evenly beside the products and the
// softmax. For kernel units.
//
//   beside    scores of segment s | weights of s | values of s
//   prefetch  values of s .............. | keys of s + 1 .....
//
// Keys and values of a head lie in pieces of a page or more: eight pieces are prefetched in turn,
// line by line.
//
//   piece 0: line 0, 1, ..   piece 1: line 0, 1, ..   ..   turn 0 prefetches line 0 of all eight,
//                                                          turn 1 line 1, ..
//
// The machine's own prefetcher follows each page some twenty lines ahead; with several pages in
// turn that is long enough for memory, and most prefetches find their line in L2. (AMX Xeon, 2
// threads, 4 rows, 4,096 keys, int8 KV of 64 dims: 1.17 times as fast with 8 pieces as with the
// groups of a tile after the other, 1.12 with 4, 1.07 with 16; bf16 1.01 to 1.03.)
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "engine/cpu/attention/attention_tile.h"

namespace baton {
namespace {

class SegmentAhead {
 public:
  // next: its keys; it may have no tiles. n_rows: rows that attend the segment.
  SegmentAhead(const KeySegment& segment, const KeySegment& next, int n_rows) {
    const KeyTile& first = segment.tiles[0];
    for (int t = 0; t < segment.n_tiles; ++t) AddValues(segment.tiles[t]);
    for (int t = 0; t < next.n_tiles; ++t) AddKeys(next.tiles[t]);
    for (int i = n_pieces_; i < n_pieces_ + kAtOnce; ++i) pieces_[i] = {pieces_[0].from, 0};
    int64_t turns = 0;
    for (int i = 0; i < n_pieces_; i += kAtOnce) turns += LinesFrom(i);
    const int products = 4 * (first.key_dim / 32 * 2 + (first.value_dim + 63) / 64 * 4);
    due_at_ = segment.n_tiles * (kProductWeight * products + 3 * n_rows);
    due_beside_softmax_ = turns;
    Begin();
  }
  // Called after each product with a B tile.
  inline __attribute__((always_inline)) void BesideProduct() {
    Step(kProductWeight * due_beside_softmax_);
  }
  // Called three times per row and tile.
  inline __attribute__((always_inline)) void BesideSoftmax() { Step(due_beside_softmax_); }

 private:
  static constexpr int kAtOnce = 8;
  static constexpr int64_t kPage = 4096, kLine = 64;
  static constexpr int kProductWeight = 2;  // a product takes as long as two steps of the softmax
  static constexpr int kMaxPieces =
      2 * kSegmentTiles * kTileGroups * ((kGroupKeys * kMaxKeyDim * 2 + kPage - 1) / kPage + 1);

  // Adjacent bytes of a page or a little more, or of all that is adjacent.
  struct Piece {
    const char* from;
    int64_t lines;
  };

  void AddKeys(const KeyTile& tile) {
    tile.source != nullptr ? Add(tile.source->k, tile.all_groups, tile.key_dim)
                           : Add(tile.k, tile.all_groups, tile.key_dim);
  }
  void AddValues(const KeyTile& tile) {
    tile.source != nullptr ? Add(tile.source->v, tile.all_groups, tile.value_dim)
                           : Add(tile.v, tile.all_groups, tile.value_dim);
  }
  // n groups of keys or values so wide: int8 (of a source) or bf16.
  template <class Element>
  void Add(const Element* const (&groups)[kTileGroups], int n, int64_t width) {
    constexpr bool kIsInt8 = sizeof(Element) == 1;
    const int64_t group_bytes =
        kGroupKeys * width * sizeof(Element) + (kIsInt8 ? kInt8ScaleBytes : 0);
    const auto at = [&](int j) { return reinterpret_cast<const char*>(groups[j]); };
    for (int begin = 0, end = 1; begin < n; begin = end++) {
      while (end < n && at(end) == at(end - 1) + group_bytes) ++end;
      AddRun(at(begin), (end - begin) * group_bytes);
    }
  }
  void AddRun(const char* from, int64_t bytes) {
    const int64_t pieces = bytes < 2 * kPage ? 1 : bytes / kPage;
    const int64_t lines = (bytes + pieces * kLine - 1) / (pieces * kLine);
    for (int64_t i = 0; i < pieces; ++i) pieces_[n_pieces_++] = {from + i * lines * kLine, lines};
  }
  // Lines of the longest of the pieces from `first` on that are prefetched in turn.
  int64_t LinesFrom(int first) const {
    int64_t lines = 0;
    for (int i = first; i < first + kAtOnce; ++i)
      if (pieces_[i].lines > lines) lines = pieces_[i].lines;
    return lines;
  }

  inline __attribute__((always_inline)) void Step(int64_t due) {
    for (due_ += due; due_ >= due_at_; due_ -= due_at_) Turn();
  }
  inline __attribute__((always_inline)) void Turn() {
#pragma GCC unroll 8
    for (const char* from : from_) _mm_prefetch(from + at_, _MM_HINT_T1);
    at_ += kLine;
    if (at_ >= end_) Next();
  }
  __attribute__((noinline)) void Next() {
    first_ += kAtOnce;
    if (first_ < n_pieces_) return Begin();
    due_beside_softmax_ = 0;  // nothing is left
    at_ = 0;
  }
  void Begin() {
    for (int i = 0; i < kAtOnce; ++i) from_[i] = pieces_[first_ + i].from;
    end_ = LinesFrom(first_) * kLine;
    at_ = 0;
  }

  const char* from_[kAtOnce];     // the pieces that are prefetched in turn
  int64_t at_ = 0, end_ = 0;      // bytes of each
  int64_t due_ = 0, due_at_ = 0;  // shares of turns: a turn is due at due_at_
  int64_t due_beside_softmax_ = 0;
  int first_ = 0, n_pieces_ = 0;
  Piece pieces_[kMaxPieces + kAtOnce];
};

}  // namespace
}  // namespace baton
