// Attention of pieces of one row, and the kernel that makes the work lists. A block of four warps
// serves the heads of a head block. Of scores each warp has a quarter of a tile's keys, of sums a
// quarter of the columns. Blocks share a row's segments: each leaves its partial results, and the
// last to end folds them. Device code: nothing of CUDA's runtime, so that tests can run it on an
// emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/attention_tile.cuh"

namespace baton {
namespace {

constexpr int kRowThreads = 128;
constexpr int kRowSlots = 3;  // of the ring: keys of a tile or values of a tile each

// Behind the ring: weights (16, 128) bf16, maxima (4 warps, 16), sums of weights (4 warps, 16), and
// whether this block is a row's last.
constexpr int kWeightBytes = 16 * kTileKeys * 2;
constexpr int kExchangeBytes = 4 * 16 * 4;
// 128 bytes more, because the ring begins at a multiple of 128.
template <int kRow>
constexpr int kRowSharedBytes =
    128 + kRowSlots* kTileBytes<kRow> + kWeightBytes + 2 * kExchangeBytes + 16;

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
         (slot * n_blocks + head_block) * static_cast<int64_t>(pass.heads * (kRow + 2));
}

// Folds the partial results of a row, ascending, and writes its outputs. All threads of the block.
template <int kRow>
__device__ __forceinline__ void FoldPartials(const AttentionPass& pass, const AttentionItem& item,
                                             const HeadBlock& heads, int n_segments) {
  constexpr int kPairs = kRow / 2;  // threads of a head, two columns each
  const int column = static_cast<int>(threadIdx.x) % kPairs * 2;
  for (int head = threadIdx.x / kPairs; head < heads.n; head += kRowThreads / kPairs) {
    RowTotal total;
    float low = 0, high = 0;
#pragma unroll 4
    for (int segment = 0; segment < n_segments; ++segment) {
      const float* partial = PartialOf<kRow>(pass, item.more + segment, blockIdx.y);
      const float* statistics = partial + pass.heads * kRow + head;
      const float segment_low = LoadOfOthers(partial + head * kRow + column),
                  segment_high = LoadOfOthers(partial + head * kRow + column + 1);
      const FoldFactors factor =
          Fold(total, LoadOfOthers(statistics), LoadOfOthers(statistics + pass.heads));
      if (!factor.is_seen) continue;
      low = low * factor.total + segment_low * factor.segment;
      high = high * factor.total + segment_high * factor.segment;
    }
    const int64_t at = int64_t{item.row - pass.from} * pass.n_heads + heads.first + head;
    *reinterpret_cast<uint32_t*>(pass.out + at * kRow + column) = Outputs(low, high, total.weight);
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

template <int kRow>
__global__ void __launch_bounds__(kRowThreads, 2) AttendRowKernel(AttentionPass pass) {
  constexpr int kColumns = kRow / 4;  // of a warp
  if (static_cast<int>(blockIdx.x) >= pass.lists.counts[1]) return;
  const AttentionItem item = pass.lists.rows[blockIdx.x];
  const HeadBlock heads = HeadsOf(pass, blockIdx.y);
  const KeySource source =
      SourceOf<kRow>(pass, ViewOf(pass.block), item, heads.kv_head, item.position);
  const int first_tile = source.first / kTileKeys, last_tile = source.last / kTileKeys;
  const int first_segment = first_tile / kSegmentTiles;
  const int n_segments = last_tile / kSegmentTiles - first_segment + 1;
  const bool is_shared = item.more >= 0;
  const int n_blocks = !is_shared ? 1 : n_segments < pass.n_splits ? n_segments : pass.n_splits;
  const int index = blockIdx.z;
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
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[i][2 * half] = scores[i][2 * half] * pass.factor;
        scores[i][2 * half + 1] = scores[i][2 * half + 1] * pass.factor;
      }
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
      const float alpha = Weigh<1>(scores, half, max, state[half]);
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
            pass, item.more + walk.tile / kSegmentTiles - first_segment, blockIdx.y);
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
        const FoldFactors factor = Fold(total[half], state[half].max, weight);
        if (factor.is_seen) {
#pragma unroll
          for (int i = 0; i < kColumns / 8; ++i) {
#pragma unroll
            for (int j = 2 * half; j < 2 * half + 2; ++j)
              totals[i][j] = totals[i][j] * factor.total + sums[i][j] * factor.segment;
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
      int* finished =
          pass.lists.finished + blockIdx.x * pass.n_kv_heads * pass.head_blocks + blockIdx.y;
      const bool is_row_complete = AddGlobal(finished, 1) == n_blocks - 1;
      if (is_row_complete) *finished = 0;  // for the next layer
      FenceMemory();
      StoreShared(is_last, is_row_complete ? 1 : 0);
    }
    __syncthreads();
    if (LoadShared(is_last) != 0) FoldPartials<kRow>(pass, item, heads, n_segments);
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g + 8 * half;
    if (row >= heads.n) continue;
    uint16_t* out = pass.out + (first_at + row) * kRow + warp * kColumns + 2 * t;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i)
      *reinterpret_cast<uint32_t*>(out + i * 8) =
          Outputs(totals[i][2 * half], totals[i][2 * half + 1], total[half].weight);
  }
}

constexpr int kListThreads = 256;
constexpr int kListSharedBytes = 16;

// Makes the lists of a block and range, by one block of threads. Their order is that of chance,
// which decides nothing but which block of threads computes what.
__global__ void __launch_bounds__(kListThreads) ListKernel(AttentionPass pass) {
  const uint32_t counts = SharedBase();  // chunks, rows, slots
  if (threadIdx.x < 3) StoreShared(counts + threadIdx.x * 4, 0);
  __syncthreads();
  const BlockView view = ViewOf(pass.block);
  const int tokens = pass.chunk_rows / pass.heads;  // of a tile
  for (int piece = threadIdx.x; piece < view.n_pieces; piece += kListThreads) {
    const int piece_begin = view.piece_begin[piece], piece_end = view.piece_begin[piece + 1];
    const int begin = piece_begin < pass.from ? pass.from : piece_begin;
    const int end = piece_end < pass.to ? piece_end : pass.to;
    const int n = end - begin;
    if (n < 1) continue;
    const int position = view.positions[begin], page_begin = view.page_begin[piece];
    if (n == 1) {
      const int n_segments = position / kTileKeys / kSegmentTiles -
                             FirstKey(pass.window, position) / kTileKeys / kSegmentTiles + 1;
      int slot = -1;
      if (pass.n_splits > 1 && n_segments > 1) {
        slot = AddShared(counts + 8, n_segments);
        if (slot + n_segments > pass.lists.n_slots) slot = -1;  // one block computes the row
      }
      pass.lists.rows[AddShared(counts + 4, 1)] = {begin, position, page_begin, slot};
      continue;
    }
    const int n_tiles = (n + tokens - 1) / tokens;
    const int first = AddShared(counts, n_tiles);
    for (int i = 0; i < n_tiles; ++i) {  // those with the most keys come first
      const int before = (n_tiles - 1 - i) * tokens;
      pass.lists.chunks[first + i] = {begin + before, position + before, page_begin,
                                      n - before < tokens ? n - before : tokens};
    }
  }
  if (pass.n_splits > 1) {
    const int n = (pass.to - pass.from) * pass.n_kv_heads * pass.head_blocks;
    for (int i = threadIdx.x; i < n; i += kListThreads) pass.lists.finished[i] = 0;
  }
  __syncthreads();
  if (threadIdx.x < 2) pass.lists.counts[threadIdx.x] = LoadShared(counts + threadIdx.x * 4);
}

}  // namespace
}  // namespace baton
