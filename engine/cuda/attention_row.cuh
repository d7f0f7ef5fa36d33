// Attention of pieces of one row, and the kernel that makes the work lists. A block of four warps
// serves the heads of a head block. Of scores each warp has a quarter of a tile's keys, of sums a
// quarter of the columns. Blocks share a row's segments: each leaves its partial results, and the
// last to end folds them. Device code: nothing of CUDA's runtime, so that tests can run it on an
// emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/attention_tile.cuh"
#include "engine/cuda/block_view.h"
#include "engine/cuda/dependent_launch.cuh"

namespace baton {
namespace {

constexpr int kRowThreads = 128;

// Behind the ring: weights (16, 128) bf16, maxima (4 warps, 16), sums of weights (4 warps, 16), and
// whether this block is a row's last.
constexpr int kWeightBytes = 16 * kTileKeys * 2;
constexpr int kExchangeBytes = 4 * 16 * 4;
// kSlots: of the ring, keys of a tile or values of a tile each. 128 bytes more, because the ring
// begins at a multiple of 128.
template <int kRow, int kSlots>
constexpr int kRowSharedBytes =
    128 + kSlots* kTileBytes<kRow> + kWeightBytes + 2 * kExchangeBytes + 16;
// Blocks of a multiprocessor.
template <int kRow, int kSlots>
constexpr int kRowBlocks = kRow* kSlots > 64 * 6 ? 1 : 2;

// Tiles of a block: segments first, first + step, ...
struct TileWalk {
  int tile, step;  // step: segments of the others, in tiles
  __device__ __forceinline__ void Next() {
    ++tile;
    if (tile % kSegmentTiles == 0) tile += step;
  }
};

// Returns where partial results of a segment are: (heads, kRow) sums, (heads) maxima and weights.
template <int kRow>
__device__ __forceinline__ float* PartialOf(const AttentionPass& pass, int slot, int head_block) {
  const int64_t n_blocks = int64_t{pass.n_kv_heads} * pass.head_blocks;
  return pass.lists.partials +
         (slot * n_blocks + head_block) * static_cast<int64_t>(pass.heads * (kRow + 4));
}

// Folds the partial results of a row, ascending, and writes its outputs. All threads of the block.
template <int kRow>
__device__ __forceinline__ void FoldPartials(const AttentionPass& pass, const AttentionItem& item,
                                             const HeadBlock& heads, int head_block,
                                             int n_segments) {
  constexpr int kFours = kRow / 4;  // threads of a head, four columns each
  constexpr int kBatch = 16;        // segments that are loaded at once: each load takes long
  const int column = static_cast<int>(threadIdx.x) % kFours * 4;
  for (int head = threadIdx.x / kFours; head < heads.n; head += kRowThreads / kFours) {
    RowTotal total;
    float totals[4] = {};
    for (int first = 0; first < n_segments; first += kBatch) {
      float sums[kBatch][4], maxima[kBatch], weights[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        maxima[i] = kNothingSeen;
        if (first + i >= n_segments) continue;
        const float* partial = PartialOf<kRow>(pass, item.more + first + i, head_block);
        LoadOfOthers(sums[i], partial + head * kRow + column);
        maxima[i] = LoadOfOthers(partial + pass.heads * kRow + head);
        weights[i] = LoadOfOthers(partial + pass.heads * (kRow + 1) + head);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (maxima[i] == kNothingSeen) continue;
        const FoldFactors factors = Fold(total, maxima[i], weights[i], pass.factor);
#pragma unroll
        for (int j = 0; j < 4; ++j) totals[j] = Folded(totals[j], sums[i][j], factors);
      }
    }
    const int64_t at = int64_t{item.row - pass.from} * pass.n_heads + heads.first + head;
    const float inverse = Quotient(1.0f, total.weight);
    auto* out = reinterpret_cast<uint32_t*>(pass.out + at * kRow + column);
    out[0] = Outputs(totals[0], totals[1], inverse);
    out[1] = Outputs(totals[2], totals[3], inverse);
  }
}

// Operands of 16 M-rows: q of rows lane / 4 and 8 more; null: zeros.
template <int kRow>
__device__ __forceinline__ void LoadQueries(uint32_t (&q)[kRow / 16][4], const uint16_t* low,
                                            const uint16_t* high) {
  const int at = threadIdx.x % 4 * 2;
  const auto pair = [](const uint16_t* row, int column) {
    return row == nullptr ? 0u : *reinterpret_cast<const uint32_t*>(row + column);
  };
#pragma unroll
  for (int group = 0; group < kRow / 16; ++group) {
    q[group][0] = pair(low, group * 16 + at);
    q[group][1] = pair(high, group * 16 + at);
    q[group][2] = pair(low, group * 16 + at + 8);
    q[group][3] = pair(high, group * 16 + at + 8);
  }
}

template <int kRow, int kRowSlots>
__global__ void __launch_bounds__(kRowThreads, (kRowBlocks<kRow, kRowSlots>))
    AttendRowKernel(AttentionPass pass) {
  constexpr int kColumns = kRow / 4;  // of a warp
  LetNextKernelBegin();
  WaitForKernelBefore();
  const AttentionItem item = pass.lists.rows[blockIdx.x];
  if (item.row < 0) return;
  const int n_head_blocks = pass.n_kv_heads * pass.head_blocks;
  const int head_block = static_cast<int>(blockIdx.y) % n_head_blocks;
  const HeadBlock heads = HeadsOf(pass, head_block);
  const KeySource source = SourceOf<kRow>(pass, item, heads.kv_head, item.position);
  const int first_tile = source.first / kTileKeys, last_tile = source.last / kTileKeys;
  const int first_segment = first_tile / kSegmentTiles;
  const int n_segments = last_tile / kSegmentTiles - first_segment + 1;
  const bool is_shared = item.more >= 0;
  const int n_blocks = !is_shared ? 1 : n_segments < pass.n_splits ? n_segments : pass.n_splits;
  const int index = static_cast<int>(blockIdx.y) / n_head_blocks;  // among the blocks of the row
  if (index >= n_blocks) return;

  const uint32_t ring = (SharedBase() + 127u) & ~127u;
  const uint32_t weights = ring + kRowSlots * kTileBytes<kRow>;
  const uint32_t maxima = weights + kWeightBytes, quarters = maxima + kExchangeBytes;
  const uint32_t is_last = quarters + kExchangeBytes;

  // Copies keys and values of its tiles in turn.
  const int begin = (first_segment + index) * kSegmentTiles;
  const TileWalk start{begin < first_tile ? first_tile : begin, (n_blocks - 1) * kSegmentTiles};
  TileWalk next = start;
  bool is_next_value = false;
  int next_slot = 0;
  int page = PageOfLane(source, next.tile);
  const auto copy_next = [&] {
    if (next.tile <= last_tile) {
      CopyKeys<kRow, kRowThreads>(ring + next_slot * kTileBytes<kRow>, source,
                                  is_next_value ? source.value_offset : 0, next.tile, page);
      if (is_next_value) {
        next.Next();
        page = PageOfLane(source, next.tile);
      }
      is_next_value = !is_next_value;
      next_slot = next_slot + 1 == kRowSlots ? 0 : next_slot + 1;
    }
    CommitCopies();  // empty groups keep the count
  };
#pragma unroll
  for (int i = 0; i < kRowSlots; ++i) copy_next();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t first_at = int64_t{item.row - pass.from} * pass.n_heads + heads.first;
  uint32_t q[kRow / 16][4];
  LoadQueries<kRow>(q, g < heads.n ? pass.q + (first_at + g) * kRow : nullptr,
                    g + 8 < heads.n ? pass.q + (first_at + g + 8) * kRow : nullptr);

  float sums[kColumns / 8][4] = {}, totals[kColumns / 8][4] = {};
  RowState<1> state[2];
  RowTotal total[2];
  int slot = 0;
  const auto next_of = [](int at) { return at + 1 == kRowSlots ? 0 : at + 1; };
  for (TileWalk walk = start; walk.tile <= last_tile; walk.Next()) {
    WaitForCopies<kRowSlots - 2>();
    __syncthreads();  // the keys are there for all, and all have read the values before
    if (walk.tile != start.tile) copy_next();
    float scores[4][4];
    const auto load = [&](int group, uint32_t(&operand)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) operand[i] = q[group][i];
    };
    Scores<kRow, 32>(scores, load, ring + slot * kTileBytes<kRow>, warp * 32);
    slot = next_of(slot);
    const int keys_begin = walk.tile * kTileKeys + warp * 32 + 2 * t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Hide(scores, half, source.first - keys_begin, source.last - keys_begin);
      float max = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        max = Greater(max, Greater(scores[i][2 * half], scores[i][2 * half + 1]));
      max = MaxOfQuad(max);
      if (t == 0) StoreSharedFloat(maxima + (warp * 16 + g + 8 * half) * 4, max);
    }
    __syncthreads();  // the maxima are there, and all have read the keys
    copy_next();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half;
      float max = state[half].max;
#pragma unroll
      for (int i = 0; i < 4; ++i) max = Greater(max, LoadSharedFloat(maxima + (i * 16 + row) * 4));
      const float alpha = Weigh<1>(scores, half, max, pass.factor, state[half]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        StoreShared(weights + row * kTileKeys * 2 + ((warp * 4 + i) ^ g) * 16 + t * 4,
                    RoundedPair(scores[i][2 * half], scores[i][2 * half + 1]));
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) {
        sums[i][2 * half] = sums[i][2 * half] * alpha;
        sums[i][2 * half + 1] = sums[i][2 * half + 1] * alpha;
      }
    }
    WaitForCopies<kRowSlots - 1>();
    __syncthreads();  // weights and values are there for all
    const LaneRow values = ValuesOfLane(ring + slot * kTileBytes<kRow>, warp * kColumns);
#pragma unroll
    for (int group = 0; group < kTileKeys / 16; ++group) {
      uint32_t p[4];
      LoadMatrices(
          p, weights + lane % 16 * kTileKeys * 2 + ((group * 2 + lane / 16) ^ (lane & 7)) * 16);
      AddValues<kColumns>(sums, p, values, group);
    }
    slot = next_of(slot);

    if (walk.tile % kSegmentTiles != kSegmentTiles - 1 && walk.tile != last_tile) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float weight = SumOfQuad(state[half].weights[0]);
      if (t == 0) StoreSharedFloat(quarters + (warp * 16 + g + 8 * half) * 4, weight);
    }
    __syncthreads();  // sums of all quarters are there
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = g + 8 * half;
      const auto quarter = [&](int i) { return LoadSharedFloat(quarters + (i * 16 + row) * 4); };
      const float weight = ((quarter(0) + quarter(1)) + quarter(2)) + quarter(3);
      if (is_shared) {
        float* partial = PartialOf<kRow>(
            pass, item.more + walk.tile / kSegmentTiles - first_segment, head_block);
        if (row < heads.n) {
#pragma unroll
          for (int i = 0; i < kColumns / 8; ++i) {
            float* to = partial + row * kRow + warp * kColumns + i * 8 + 2 * t;
            to[0] = sums[i][2 * half];
            to[1] = sums[i][2 * half + 1];
          }
          if (warp == 0 && t == 0) {
            partial[pass.heads * kRow + row] = state[half].max;
            partial[pass.heads * (kRow + 1) + row] = weight;
          }
        }
      } else {
        const FoldFactors factor = Fold(total[half], state[half].max, weight, pass.factor);
        if (factor.is_seen) {
#pragma unroll
          for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
            for (int j = 2 * half; j < 2 * half + 2; ++j)
              totals[i][j] = Folded(totals[i][j], sums[i][j], factor);
          }
        }
      }
      state[half] = {};
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i) sums[i][2 * half] = sums[i][2 * half + 1] = 0.0f;
    }
  }

  if (is_shared) {
    FenceMemory();
    __syncthreads();  // all have written their partial results
    if (threadIdx.x == 0) {
      int* finished = pass.lists.finished + blockIdx.x * n_head_blocks + head_block;
      const bool is_row_complete = AddGlobal(finished, 1) == n_blocks - 1;
      if (is_row_complete) *finished = 0;  // for the next layer
      FenceMemory();
      StoreShared(is_last, is_row_complete ? 1 : 0);
    }
    __syncthreads();
    if (LoadShared(is_last) != 0) FoldPartials<kRow>(pass, item, heads, head_block, n_segments);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g + 8 * half;
    if (row >= heads.n) continue;
    uint16_t* out = pass.out + (first_at + row) * kRow + warp * kColumns + 2 * t;
    const float inverse = Quotient(1.0f, total[half].weight);
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i)
      *reinterpret_cast<uint32_t*>(out + i * 8) =
          Outputs(totals[i][2 * half], totals[i][2 * half + 1], inverse);
  }
}

constexpr int kListThreads = 256;
constexpr int kListSharedBytes = 16;

// Makes the lists of a block and range, by one block of threads, for layers of any window. Their
// order is that of chance, which decides nothing but which block of threads computes what.
__global__ void __launch_bounds__(kListThreads) ListKernel(AttentionPass pass) {
  LetNextKernelBegin();
  const uint32_t counts = SharedBase();  // chunks, rows, slots, segments of rows
  if (threadIdx.x < 4) StoreShared(counts + threadIdx.x * 4, 0);
  __syncthreads();
  WaitForKernelBefore();
  const BlockView view = ViewOf(pass.block);
  const int tokens = pass.chunk_rows / pass.heads;  // of a tile
  const int n_finished = (pass.to - pass.from) * pass.n_kv_heads * pass.head_blocks;
  if (pass.n_splits > 1)
    for (int i = threadIdx.x; i < n_finished; i += kListThreads) pass.lists.finished[i] = 0;

  // Rows [begin, begin + n) of a piece; n < 1: none.
  struct Rows {
    int begin, n, position, pages;
  };
  const auto rows_of = [&](int piece) {
    Rows rows = {};
    if (piece >= view.n_pieces) return rows;
    const int begin = view.piece_begin[piece], end = view.piece_begin[piece + 1];
    rows.begin = begin < pass.from ? pass.from : begin;
    rows.n = (end < pass.to ? end : pass.to) - rows.begin;
    if (rows.n < 1) return rows;
    rows.position = view.positions[rows.begin];
    rows.pages = static_cast<int>(view.pages - pass.block) + view.page_begin[piece];
    return rows;
  };
  const auto segments_of = [](int position) { return position / kTileKeys / kSegmentTiles + 1; };
  const Rows first_rows = rows_of(threadIdx.x);
  const auto known_rows_of = [&](int piece) {
    return piece < kListThreads ? first_rows : rows_of(piece);
  };
  if (pass.n_splits > 1) {
    for (int piece = threadIdx.x; piece < view.n_pieces; piece += kListThreads) {
      const Rows rows = known_rows_of(piece);
      if (rows.n == 1) AddShared(counts + 12, segments_of(rows.position));
    }
  }
  __syncthreads();  // all segments are counted
  // A row whose share is no larger than that of others is not worth partial results.
  const int share = static_cast<int>(LoadShared(counts + 12)) / pass.n_shares + 1;
  for (int first = 0; first < view.n_pieces; first += kListThreads) {
    const Rows rows = known_rows_of(first + static_cast<int>(threadIdx.x));
    if (rows.n == 1) {
      const int n_segments = segments_of(rows.position);
      int slot = -1;
      if (pass.n_splits > 1 && n_segments > share) {
        slot = AddShared(counts + 8, n_segments);
        if (slot + n_segments > pass.lists.n_slots) slot = -1;  // one block computes the row
      }
      pass.lists.rows[AddShared(counts + 4, 1)] = {rows.begin, rows.position, rows.pages, slot};
    }
    // The lanes of a warp write the tiles of each piece together.
    const int n_tiles = rows.n > 1 ? (rows.n + tokens - 1) / tokens : 0;
    const int first_item = n_tiles > 0 ? AddShared(counts, n_tiles) : 0;
    for (int lane = 0; lane < 32; ++lane) {
      const int n = ShuffleFrom(n_tiles, lane);
      if (n == 0) continue;
      const int to = ShuffleFrom(first_item, lane), n_rows = ShuffleFrom(rows.n, lane);
      const int begin = ShuffleFrom(rows.begin, lane), position = ShuffleFrom(rows.position, lane);
      const int pages = ShuffleFrom(rows.pages, lane);
      for (int i = threadIdx.x % 32; i < n; i += 32) {  // those with the most keys come first
        const int before = (n - 1 - i) * tokens;
        pass.lists.chunks[to + i] = {begin + before, position + before, pages,
                                     n_rows - before < tokens ? n_rows - before : tokens};
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) pass.lists.counts[0] = LoadShared(counts);
  const int n_rows = static_cast<int>(LoadShared(counts + 4));
  for (int i = n_rows + static_cast<int>(threadIdx.x); i < pass.to - pass.from; i += kListThreads)
    pass.lists.rows[i] = {-1, 0, 0, 0};
}

}  // namespace
}  // namespace baton
