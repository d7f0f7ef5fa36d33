// Attention of pieces with more than one row, by mma.sync: the reference of the kernel in
// attention_warpgroup.cuh, which has the same bits. Each warp has 16 M-rows; tiles of keys and
// values come through a ring of two stages, queries lie in shared memory, too. Totals over segments
// lie in shared memory, where each thread has its own. Device code: nothing of CUDA's runtime, so
// that tests can run it on an emulated block of threads.
#pragma once

#include <cstdint>

#include "engine/cuda/attention_query.cuh"

namespace baton {
namespace {

template <int kRow, int kWarps>
constexpr int kChunkTotalBytes = kWarps * 16 * kRow * 4;
// 128 bytes more, because the first stage begins at a multiple of 128.
template <int kRow, int kWarps>
constexpr int kChunkSharedBytes =
    128 + 4 * kTileBytes<kRow> + kQueryBytes<kRow, kWarps> + kChunkTotalBytes<kRow, kWarps>;

template <int kRow, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 1) AttendChunkKernel(AttentionPass pass) {
  constexpr int kThreads = kWarps * 32;
  if (static_cast<int>(blockIdx.x) >= pass.lists.counts[0]) return;
  const AttentionItem item = pass.lists.chunks[blockIdx.x];
  const HeadBlock heads = HeadsOf(pass, blockIdx.y);
  const KeySource source = SourceOf<kRow>(pass, item, heads.kv_head, item.position + item.more - 1);
  const int first_tile = source.first / kTileKeys, last_tile = source.last / kTileKeys;
  const uint32_t ring = (SharedBase() + 127u) & ~127u;
  const uint32_t queries = ring + 4 * kTileBytes<kRow>;
  const uint32_t totals = queries + kQueryBytes<kRow, kWarps> + threadIdx.x * 4;
  const auto copy = [&](int tile, int page) {
    const uint32_t stage = ring + tile % 2 * 2 * kTileBytes<kRow>;
    CopyKeys<kRow, kThreads>(stage, source, 0, tile, page);
    CopyKeys<kRow, kThreads>(stage + kTileBytes<kRow>, source, source.value_offset, tile, page);
  };
  CopyQueries<kRow, kWarps>(queries, pass, item, heads);
  copy(first_tile, PageOfLane(source, first_tile));
  CommitCopies();
  int page = PageOfLane(source, first_tile + 1);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
  const int row = warp * 16 + lane / 4;  // and 8 more
  // Keys that the lane's two rows see, relative to the lane's first key of a tile.
  int position[2], first[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = HeadOfRow(pass, item, heads, row + 8 * half);
    const int row_position = item.position + (row + 8 * half) / pass.heads;
    position[half] = at < 0 ? -1 - 2 * t : row_position - 2 * t;
    first[half] = at < 0 ? 0 : FirstKey(pass.window, row_position) - 2 * t;
  }
  const auto load_query = [&](int group, uint32_t(&operand)[4]) {
    LoadMatrices(operand,
                 PieceOfQuery<kWarps>(queries, warp * 16 + lane % 16, group * 2 + lane / 16));
  };
  // Keys that a row of this warp sees; no tile outside of them is computed.
  const int first_token = warp * 16 / pass.heads;
  const int end_token = (warp * 16 + 15) / pass.heads;
  const int warp_first = FirstKey(pass.window, item.position + first_token);
  const int warp_last = first_token < item.more
                            ? item.position + (end_token < item.more ? end_token : item.more - 1)
                            : -1;

  float sums[kRow / 8][4] = {};
  RowState<4> state[2];
  RowTotal total[2];
#pragma unroll
  for (int i = 0; i < kRow / 2; ++i) StoreSharedFloat(totals + i * kThreads * 4, 0.0f);
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    WaitForCopies<0>();
    __syncthreads();  // this tile is there for all, and all have read the one before
    if (tile < last_tile) copy(tile + 1, page);
    CommitCopies();
    page = PageOfLane(source, tile + 2);

    const int begin = tile * kTileKeys;
    if (begin <= warp_last && begin + kTileKeys > warp_first) {
      const uint32_t keys = ring + tile % 2 * 2 * kTileBytes<kRow>;
      float scores[kTileKeys / 8][4];
      Scores<kRow, kTileKeys>(scores, load_query, keys, 0);
      float alpha[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Most tiles are seen by all rows.
        if (position[half] - begin < kTileKeys - 1 || first[half] > begin - 2 * t)
          Hide(scores, half, first[half] - begin, position[half] - begin);
        float max = scores[0][2 * half];
#pragma unroll
        for (int i = 0; i < kTileKeys / 8; ++i)
          max = Greater(max, Greater(scores[i][2 * half], scores[i][2 * half + 1]));
        alpha[half] = Weigh<4>(scores, half, Greater(state[half].max, MaxOfQuad(max)), pass.factor,
                               state[half]);
      }
#pragma unroll
      for (int i = 0; i < kRow / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = sums[i][j] * alpha[j / 2];
      }
      const LaneRow values = ValuesOfLane(keys + kTileBytes<kRow>, 0);
#pragma unroll
      for (int group = 0; group < kTileKeys / 16; ++group) {
        const auto& low = scores[2 * group];
        const auto& high = scores[2 * group + 1];
        const uint32_t p[4] = {RoundedPair(low[0], low[1]), RoundedPair(low[2], low[3]),
                               RoundedPair(high[0], high[1]), RoundedPair(high[2], high[3])};
        AddValues<kRow>(sums, p, values, group);
      }
    }

    if (tile % kSegmentTiles != kSegmentTiles - 1 && tile != last_tile) continue;
    FoldFactors factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float quarters[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) quarters[i] = SumOfQuad(state[half].weights[i]);
      factors[half] = Fold(total[half], state[half].max,
                           ((quarters[0] + quarters[1]) + quarters[2]) + quarters[3], pass.factor);
      state[half] = {};
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!factors[half].is_seen) continue;
#pragma unroll
      for (int i = 0; i < kRow / 4; ++i) {
        const int j = 2 * half + i % 2;
        const uint32_t place = totals + (i / 2 * 4 + j) * kThreads * 4;
        StoreSharedFloat(place, Folded(LoadSharedFloat(place), sums[i / 2][j], factors[half]));
      }
    }
#pragma unroll
    for (int i = 0; i < kRow / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
    }
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = HeadOfRow(pass, item, heads, row + 8 * half);
    if (at < 0) continue;
    uint16_t* out = pass.out + int64_t{at} * kRow + 2 * t;
    const float inverse = Quotient(1.0f, total[half].weight);
#pragma unroll
    for (int i = 0; i < kRow / 8; ++i) {
      const uint32_t place = totals + (4 * i + 2 * half) * kThreads * 4;
      *reinterpret_cast<uint32_t*>(out + i * 8) =
          Outputs(LoadSharedFloat(place), LoadSharedFloat(place + kThreads * 4), inverse);
    }
  }
}

}  // namespace
}  // namespace baton
