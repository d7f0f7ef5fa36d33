// Parts that both attention kernels share: tiles of keys and values in shared memory, and the
// softmax of a tile. Device code: nothing of CUDA's runtime, so that tests can run it on an
// emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/async_copy.cuh"
#include "engine/cuda/attention_pass.h"
#include "engine/cuda/attention_words.cuh"
#include "engine/cuda/mma.cuh"

namespace baton {
namespace {

constexpr int kSubtileBytes = kTileKeys * 128;

// Keys, or values, of a tile: subtiles of 64 columns.
template <int kRow>
constexpr int kTileBytes = kRow / 64 * kSubtileBytes;

constexpr float kNothingSeen = -__builtin_huge_valf();

// Heads that a block of threads serves.
struct HeadBlock {
  int kv_head, first, n;
};
__device__ __forceinline__ HeadBlock HeadsOf(const AttentionPass& pass, int index) {
  const int kv_head = index / pass.head_blocks;
  const int before = index % pass.head_blocks * pass.heads;
  const int left = pass.group - before;
  return {kv_head, kv_head * pass.group + before, left < pass.heads ? left : pass.heads};
}

// The first key that a row at this position sees.
__device__ __forceinline__ int FirstKey(int window, int position) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Keys that a block of threads reads, and where they are.
struct KeySource {
  const uint8_t* keys;   // of the KV head, in page 0
  int64_t value_offset;  // from keys to values
  int64_t page_stride;
  const int32_t* entries;  // page table
  int page_shift;
  int first, last;  // keys
};
template <int kRow>
__device__ __forceinline__ KeySource SourceOf(const AttentionPass& pass, const AttentionItem& item,
                                              int kv_head, int last) {
  const int64_t head_bytes = (int64_t{kRow} * 2) << pass.page_shift;
  return {pass.pages + kv_head * head_bytes,
          pass.n_kv_heads * head_bytes,
          pass.page_stride,
          pass.block + item.pages,
          pass.page_shift,
          FirstKey(pass.window, item.position),
          last};
}

// Lane i of a warp gets the page with key i << page_shift of the tile, -1: none that is read.
__device__ __forceinline__ int PageOfLane(const KeySource& source, int tile) {
  const int index = (tile * kTileKeys >> source.page_shift) + static_cast<int>(threadIdx.x % 8);
  const bool is_read =
      index >= source.first >> source.page_shift && index <= source.last >> source.page_shift;
  return is_read ? source.entries[index] : -1;
}

// Returns the address of 16-byte piece `column` of a key's row.
__device__ __forceinline__ uint32_t PieceOfTile(uint32_t tile, int key, int column) {
  return tile + column / 8 * kSubtileBytes + key * 128 + ((column ^ key) & 7) * 16;
}

// Starts the copies of a tile of keys, or of values (`offset` = value_offset). What no row of the
// block sees becomes zeros. page: that of PageOfLane. All threads of the block call it.
template <int kRow, int kThreads>
__device__ __forceinline__ void CopyKeys(uint32_t target, const KeySource& source, int64_t offset,
                                         int tile, int page) {
  constexpr int kColumns = kRow / 8;
  const int column = threadIdx.x % kColumns;
#pragma unroll
  for (int i = 0; i < kTileKeys * kColumns / kThreads; ++i) {
    const int key = i * (kThreads / kColumns) + static_cast<int>(threadIdx.x) / kColumns;
    const int at = tile * kTileKeys + key;
    const int key_page = ShuffleFrom(page, key >> source.page_shift);
    const bool is_there = key_page >= 0 && at >= source.first && at <= source.last;
    const int slot = key & ((1 << source.page_shift) - 1);
    const int64_t to_piece =
        offset + key_page * source.page_stride + (slot * kRow + column * 8) * 2;
    const uint8_t* from = source.keys + (is_there ? to_piece : 0);
    CopyPiece(PieceOfTile(target, key, column), reinterpret_cast<const uint16_t*>(from), is_there);
  }
}

// Addresses for the four columns of two pieces of a subtile, of the row that this lane names for
// LoadMatrices: `row` of the tile, `half` of the two pieces. The compiler sees that all other
// addresses are constants away.
struct LaneRow {
  uint32_t at[4];
  __device__ __forceinline__ LaneRow(uint32_t tile, int row, int half) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      at[i] = tile + row * 128 + static_cast<uint32_t>((2 * i) ^ half ^ (row & 7)) * 16;
  }
  // Takes column pair `pair` of the tile, `rows` rows on, which 8 divides.
  __device__ __forceinline__ uint32_t Of(int pair, int rows) const {
    return at[pair % 4] + pair / 4 * kSubtileBytes + rows * 128;
  }
};

// Scores of 16 M-rows and kKeys keys from `first_key` of the tile on: q . k, groups of 16 values
// ascending. Accumulator layout of m16n8k16 for each 8 keys. load(group, operand) gives q of a
// group.
template <int kRow, int kKeys, typename Load>
__device__ __forceinline__ void Scores(float (&scores)[kKeys / 8][4], const Load& load,
                                       uint32_t tile, int first_key) {
  const int lane = threadIdx.x % 32;
  const LaneRow keys(tile, first_key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int i = 0; i < kKeys / 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[i][j] = 0.0f;
#pragma unroll
  for (int group = 0; group < kRow / 16; ++group) {
    uint32_t q[4];
    load(group, q);
#pragma unroll
    for (int pair = 0; pair < kKeys / 16; ++pair) {
      uint32_t k[4];  // of two times 8 keys, both halves of the group
      LoadMatrices(k, keys.Of(group, pair * 16));
      MmaAdd(scores[2 * pair], q, {k[0], k[1]});
      MmaAdd(scores[2 * pair + 1], q, {k[2], k[3]});
    }
  }
}

// Where a lane reads values of a tile from `first_column` on, which 16 divides.
__device__ __forceinline__ LaneRow ValuesOfLane(uint32_t tile, int first_column) {
  const int lane = threadIdx.x % 32;
  return LaneRow(tile + first_column / 64 * kSubtileBytes, lane % 16,
                 (first_column % 64 / 8) ^ (lane / 16));
}

// Adds P . V of 16 keys (group `group` of the tile) to kColumns columns.
template <int kColumns>
__device__ __forceinline__ void AddValues(float (&sums)[kColumns / 8][4], const uint32_t (&p)[4],
                                          const LaneRow& values, int group) {
#pragma unroll
  for (int pair = 0; pair < kColumns / 16; ++pair) {
    uint32_t v[4];  // of two times 8 columns, both halves of the group
    LoadTransposed(v, values.Of(pair, group * 16));
    MmaAdd(sums[2 * pair], p, {v[0], v[1]});
    MmaAdd(sums[2 * pair + 1], p, {v[2], v[3]});
  }
}

// Hides keys outside of [first, last], both relative to this lane's first key. Scores of row half
// `half` of the lane.
template <int kTiles>
__device__ __forceinline__ void Hide(float (&scores)[kTiles][4], int half, int first, int last) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j)
      if (i * 8 + j < first || i * 8 + j > last) scores[i][2 * half + j] = kNothingSeen;
  }
}

// State of an M-row in its segment. The weights of quarter q (32 keys) of each tile have a sum of
// their own in each lane.
template <int kQuarters>
struct RowState {
  float max = kNothingSeen;
  float weights[kQuarters] = {};
};

// Returns the factor for what was summed before, and makes `scores` weights: 2^((score - max) *
// factor). factor: positive, scale * log2 e.
template <int kQuarters>
__device__ __forceinline__ float Weigh(float (&scores)[kQuarters * 4][4], int half, float new_max,
                                       float factor, RowState<kQuarters>& row) {
  // A row that has seen nothing has weights 2^-infinity, and sums of 0.
  const float base = new_max == kNothingSeen ? 0.0f : new_max;
  const float alpha = Exp2((row.max - base) * factor), shift = -(base * factor);
  row.max = new_max;
#pragma unroll
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    float sum = row.weights[quarter] * alpha;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[quarter * 4 + i][2 * half + j];
        score = Exp2(Fused(score, factor, shift));
        sum = sum + score;
      }
    }
    row.weights[quarter] = sum;
  }
  return alpha;
}

// Returns the sum over the four lanes of an M-row: (0 + 1) + (2 + 3).
__device__ __forceinline__ float SumOfQuad(float value) {
  value = value + ShuffleXor(value, 1);
  return value + ShuffleXor(value, 2);
}
__device__ __forceinline__ float MaxOfQuad(float value) {
  value = Greater(value, ShuffleXor(value, 1));
  return Greater(value, ShuffleXor(value, 2));
}

// A row's total over its segments, and the factors with which the next segment joins its sums.
struct RowTotal {
  float max = kNothingSeen;
  float weight = 0;
};
struct FoldFactors {
  bool is_seen;  // false: the segment changes nothing
  float total, segment;
};
__device__ __forceinline__ FoldFactors Fold(RowTotal& row, float max, float weight, float factor) {
  if (max == kNothingSeen) return {false, 1.0f, 0.0f};
  const float new_max = Greater(row.max, max);
  const float total = Exp2((row.max - new_max) * factor);
  const float segment = Exp2((max - new_max) * factor);
  row.weight = Fused(row.weight, total, weight * segment);
  row.max = new_max;
  return {true, total, segment};
}

// Returns a row's total with the sums of a segment.
__device__ __forceinline__ float Folded(float total, float sum, const FoldFactors& factors) {
  return Fused(total, factors.total, sum * factors.segment);
}

// Two outputs; zeros have no sign and NaN is the canonical one. inverse: 1 / the row's weight.
__device__ __forceinline__ uint32_t Outputs(float low, float high, float inverse) {
  low = low * inverse + 0.0f;
  high = high * inverse + 0.0f;
  uint32_t pair = RoundedPair(low, high);
  if (low != low) pair = (pair & 0xffff0000u) | 0x7fc0u;
  if (high != high) pair = (pair & 0xffffu) | 0x7fc00000u;
  return pair;
}

}  // namespace
}  // namespace baton
