// Attention of pieces with more than one row, by warpgroups. One or two of them have 64 M-rows
// each; one warp more copies pages of keys and values into two rings (tma.cuh). Scores of a tile
// are computed while the values of the tile before are summed and, of the other warpgroup, weights
// are made. Sums, order and rounding are those of attention_chunk.cuh, so its bits are. Pages are
// copied as a whole: what is behind a row's last key has weight 0 and is finite (docs/NUMERICS.md
// N9). Device code: nothing of CUDA's runtime, so that tests can run it on an emulated block of
// threads.
#pragma once

#include <cstdint>

#include "engine/cuda/attention_query.cuh"
#include "engine/cuda/attention_wgmma.cuh"
#include "engine/cuda/ring_place.cuh"

namespace baton {
namespace {

template <int kRow, int kGroups>
struct WarpgroupTile {
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kComputing = 128 * kGroups;    // threads
  static constexpr int kStages = kRow == 64 ? 3 : 2;  // of keys, and of values
  static constexpr int kTotalBytes = 64 * kGroups * kRow * 4;
  static constexpr int kBarriers = 4 * kStages;
  // 1024 bytes more, because the first stage begins at a multiple of 1024.
  static constexpr int kSharedBytes = 1024 + 2 * kStages * kTileBytes<kRow> +
                                      kQueryBytes<kRow, 4 * kGroups> + kTotalBytes + kBarriers * 8;
  static constexpr int kCopyRegisters = 40, kComputeRegisters = 232;
};

// One of the rings: barriers that tell that a stage is full or empty.
template <int kRow, int kStages>
struct PageRing {
  uint32_t stages, full, empty;
  RingPlace<kStages> place = {};

  __device__ __forceinline__ uint32_t stage() const {
    return stages + place.stage * kTileBytes<kRow>;
  }
  __device__ __forceinline__ void WaitUntilFull() const {
    WaitForPhase(full + place.stage * 8, place.parity);
  }
  // All lanes of a warp call it.
  __device__ __forceinline__ void Release() {
    ArriveAsWarp(empty + place.stage * 8);
    place.Advance();
  }
  // Starts the copies of a tile's pages, of which lane i has page i. All lanes of a warp call it.
  __device__ __forceinline__ void Copy(const TensorMap& map, int plane, int page, int page_shift) {
    WaitForPhase(empty + place.stage * 8, place.parity ^ 1);
    const uint32_t barrier = full + place.stage * 8;
    const bool is_first_lane = threadIdx.x % 32 == 0;
    if (is_first_lane) ArriveExpecting(barrier, kTileBytes<kRow>);
    for (int i = 0; i < kTileKeys >> page_shift; ++i) {
      const int page_of_i = ShuffleFrom(page, i);
      if (!is_first_lane) continue;
#pragma unroll
      for (int half = 0; half < kRow / 64; ++half)
        CopyPage(stage() + half * kSubtileBytes + (i << page_shift) * 128, map, half * 64, plane,
                 page_of_i, barrier);
    }
    place.Advance();
  }
};

// Names what a block computes.
struct WarpgroupTask {
  AttentionItem item;
  HeadBlock heads;
  KeySource source;
};
template <int kRow>
__device__ __forceinline__ WarpgroupTask TaskOf(const AttentionPass& pass) {
  WarpgroupTask task;
  task.item = pass.lists.chunks[blockIdx.x];
  task.heads = HeadsOf(pass, blockIdx.y);
  task.source =
      SourceOf<kRow>(pass, task.item, task.heads.kv_head, task.item.position + task.item.more - 1);
  return task;
}

template <int kRow, int kGroups>
__global__ void __launch_bounds__(WarpgroupTile<kRow, kGroups>::kThreads, 1)
    AttendWgmmaKernel(const __grid_constant__ TensorMap map, const AttentionPass pass) {
  using Tile = WarpgroupTile<kRow, kGroups>;
  constexpr int kStages = Tile::kStages;
  const uint32_t ring = (SharedBase() + 1023u) & ~1023u;
  const uint32_t queries = ring + 2 * kStages * kTileBytes<kRow>;
  const uint32_t all_totals = queries + kQueryBytes<kRow, 4 * kGroups>;
  const uint32_t barriers = all_totals + Tile::kTotalBytes;
  PageRing<kRow, kStages> keys{ring, barriers, barriers + kStages * 8};
  PageRing<kRow, kStages> values{ring + kStages * kTileBytes<kRow>, barriers + 2 * kStages * 8,
                                 barriers + 3 * kStages * 8};
  if (threadIdx.x == 0) {
    PrefetchMap(map);
    for (int stage = 0; stage < kStages; ++stage) {
      InitBarrier(keys.full + stage * 8, 1);
      InitBarrier(values.full + stage * 8, 1);
      InitBarrier(keys.empty + stage * 8, 4 * kGroups);  // a lane of each warp
      InitBarrier(values.empty + stage * 8, 4 * kGroups);
    }
    ShowBarriers();
  }
  __syncthreads();
  LetNextKernelBegin();
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;

  // Values that both roles need are read in each: registers move at their beginning, and where
  // values live across that, the compiler lets a thread use no more of them than before.
  if (warpgroup == kGroups) {
    if constexpr (kGroups == 2) GiveRegisters<Tile::kCopyRegisters>();
    WaitForKernelBefore();
    if (static_cast<int>(blockIdx.x) >= pass.lists.counts[0]) return;
    const WarpgroupTask task = TaskOf<kRow>(pass);
    const int first_tile = task.source.first / kTileKeys, last_tile = task.source.last / kTileKeys;
    if (threadIdx.x < Tile::kComputing + 32) {
      const int key_plane = task.heads.kv_head, value_plane = pass.n_kv_heads + task.heads.kv_head;
      int page = PageOfLane(task.source, first_tile),
          next = PageOfLane(task.source, first_tile + 1);
      keys.Copy(map, key_plane, page, task.source.page_shift);
      for (int tile = first_tile; tile <= last_tile; ++tile) {
        const int later = PageOfLane(task.source, tile + 2);
        if (tile < last_tile) keys.Copy(map, key_plane, next, task.source.page_shift);
        values.Copy(map, value_plane, page, task.source.page_shift);
        page = next;
        next = later;
      }
    }
  } else {
    if constexpr (kGroups == 2) TakeRegisters<Tile::kComputeRegisters>();
    WaitForKernelBefore();
    if (static_cast<int>(blockIdx.x) >= pass.lists.counts[0]) return;
    const WarpgroupTask task = TaskOf<kRow>(pass);
    const int first_tile = task.source.first / kTileKeys, last_tile = task.source.last / kTileKeys;
    const AttentionItem& item = task.item;
    const HeadBlock& heads = task.heads;
    const KeySource& source = task.source;
    CopyQueries<kRow, 4 * kGroups>(queries, pass, item, heads);
    CommitCopies();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    const int row = warp * 16 + lane / 4;                       // and 8 more
    const int last_first = FirstKey(pass.window, source.last);  // the first key of the last row
    const uint32_t totals = all_totals + threadIdx.x * 16;
    const float nothing[4] = {};
#pragma unroll
    for (int i = 0; i < kRow / 8; ++i)
      StoreSharedFloats(totals + i * Tile::kComputing * 16, nothing);

    float scores[kTileKeys / 8][4];
    float sums[kRow / 8][4] = {};
    uint32_t weights[kTileKeys / 16][4];
    RowState<4> state[2];
    RowTotal total[2];
    // Addresses in descriptors count 16 bytes.
    const uint32_t query_tile = queries + warpgroup * 64 * 128;
    const auto start_scores = [&] {
      const uint64_t all_queries = SwizzledTile(MadeAnew(query_tile));
      const uint64_t all_keys = SwizzledTile(keys.stage());
#pragma unroll
      for (int group = 0; group < kRow / 16; ++group) {
        const uint64_t q = all_queries + (group / 4 * kGroups * 64 * 128 + group % 4 * 32) / 16;
        const uint64_t k = all_keys + (group / 4 * kSubtileBytes + group % 4 * 32) / 16;
        if (group == 0) {
          SetScores(scores, q, k);
        } else {
          AddScores(scores, q, k);
        }
      }
      WarpgroupCommit();
    };
    const auto start_sums = [&] {
      const uint64_t all_values = ValueTile(values.stage(), kSubtileBytes);
#pragma unroll
      for (int group = 0; group < kTileKeys / 16; ++group)
        AddWeighted(sums, weights[group], all_values + group * 2048 / 16);
      WarpgroupCommit();
    };
    // Makes scores of a tile weights; returns factors for what was summed before.
    const auto weigh = [&](int tile, float(&alpha)[2]) {
      const int begin = tile * kTileKeys;
      const bool is_seen_by_all = begin + kTileKeys - 1 <= item.position && begin >= last_first;
      if (!is_seen_by_all) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int position = item.position + (row + 8 * half) / pass.heads;
          Hide(scores, half, FirstKey(pass.window, position) - begin - 2 * t,
               position - begin - 2 * t);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          max[i] = Greater(scores[i][2 * half], scores[i][2 * half + 1]);
#pragma unroll
          for (int j = i + 4; j < kTileKeys / 8; j += 4)
            max[i] = Greater(max[i], Greater(scores[j][2 * half], scores[j][2 * half + 1]));
        }
        const float new_max = MaxOfQuad(Greater(Greater(max[0], max[1]), Greater(max[2], max[3])));
        alpha[half] =
            Weigh<4>(scores, half, Greater(state[half].max, new_max), pass.factor, state[half]);
      }
    };
    const auto round_weights = [&] {
#pragma unroll
      for (int group = 0; group < kTileKeys / 16; ++group) {
        const auto& low = scores[2 * group];
        const auto& high = scores[2 * group + 1];
        weights[group][0] = RoundedPair(low[0], low[1]);
        weights[group][1] = RoundedPair(low[2], low[3]);
        weights[group][2] = RoundedPair(high[0], high[1]);
        weights[group][3] = RoundedPair(high[2], high[3]);
      }
    };
    // Ends the segment of the rows; returns how its sums join their totals.
    const auto end_segment = [&](FoldFactors(&factors)[2]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float quarters[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) quarters[i] = SumOfQuad(state[half].weights[i]);
        factors[half] =
            Fold(total[half], state[half].max,
                 ((quarters[0] + quarters[1]) + quarters[2]) + quarters[3], pass.factor);
        state[half] = {};
      }
    };

    WaitForCopies<0>();
    ShowToWgmma();
    ComputingBarrier<Tile::kComputing>();  // the queries are there for all
    if (kGroups == 2 && warpgroup == 1 && first_tile < last_tile) GiveTurn(0);
    float alpha[2];
    keys.WaitUntilFull();
    WarpgroupFence();
    start_scores();
    WarpgroupWait<0>();
    Hold(scores);
    keys.Release();
    weigh(first_tile, alpha);
    round_weights();

    for (int tile = first_tile + 1; tile <= last_tile; ++tile) {
      keys.WaitUntilFull();
      if constexpr (kGroups == 2) WaitForTurn(warpgroup);
      Hold(sums);
      Hold(weights);
      WarpgroupFence();
      start_scores();
      values.WaitUntilFull();
      WarpgroupFence();
      start_sums();
      if (kGroups == 2 && (warpgroup == 0 || tile < last_tile)) GiveTurn(1 - warpgroup);
      WarpgroupWait<1>();
      Hold(scores);
      keys.Release();
      const bool is_new_segment = tile % kSegmentTiles == 0;
      FoldFactors factors[2] = {};
      if (is_new_segment) end_segment(factors);
      weigh(tile, alpha);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) sum += state[0].weights[i] + state[1].weights[i];
      ComputeBefore(sum);  // while values are summed, not behind it
      WarpgroupWait<0>();
      Hold(sums);
      Hold(weights);
      values.Release();
      if (is_new_segment) {
#pragma unroll
        for (int i = 0; i < kRow / 8; ++i) {
          float before[4];
          LoadSharedFloats(before, totals + i * Tile::kComputing * 16);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            before[j] = Folded(before[j], sums[i][j], factors[j / 2]);
            sums[i][j] = 0.0f;
          }
          StoreSharedFloats(totals + i * Tile::kComputing * 16, before);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kRow / 8; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[i][j] = sums[i][j] * alpha[j / 2];
        }
      }
      round_weights();
    }

    values.WaitUntilFull();
    Hold(sums);
    Hold(weights);
    WarpgroupFence();
    start_sums();
    FoldFactors factors[2];
    end_segment(factors);
    WarpgroupWait<0>();
    Hold(sums);
    Hold(weights);
    uint16_t* out[2];
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = HeadOfRow(pass, item, heads, row + 8 * half);
      out[half] = at < 0 ? nullptr : pass.out + int64_t{at} * kRow + 2 * t;
      inverse[half] = Quotient(1.0f, total[half].weight);
    }
#pragma unroll
    for (int i = 0; i < kRow / 8; ++i) {
      float before[4];
      LoadSharedFloats(before, totals + i * Tile::kComputing * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = Folded(before[2 * half], sums[i][2 * half], factors[half]);
        const float high = Folded(before[2 * half + 1], sums[i][2 * half + 1], factors[half]);
        if (out[half] != nullptr)
          *reinterpret_cast<uint32_t*>(out[half] + i * 8) = Outputs(low, high, inverse[half]);
      }
    }
  }
}

}  // namespace
}  // namespace baton
