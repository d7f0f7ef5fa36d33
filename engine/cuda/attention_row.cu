// Starts the kernels of attention_row.cuh, and plans how attention is computed: shapes and ranges
// decide, as the host knows them, and contexts do not, so a graph may repeat a launch.
#include "engine/cuda/attention_row.cuh"

#include <algorithm>

#include "engine/cuda/attention.h"
#include "engine/cuda/attention_chunk.h"
#include "engine/cuda/attention_warpgroup.h"
#include "engine/cuda/dependent_launch.h"

namespace baton {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int kMaxSplits = 64;
// Segments of 512 keys of rows that several blocks share: a million keys.
constexpr int64_t kSlots = 2048;
constexpr int64_t kAlignment = 256;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsValid(const AttentionShape& shape) {
  return shape.n_kv_heads > 0 && shape.n_heads > 0 && shape.n_heads % shape.n_kv_heads == 0 &&
         (shape.row == 64 || shape.row == 128) && shape.window >= 0 && shape.scale > 0;
}

// Where the parts of the work memory begin.
struct WorkLayout {
  int64_t chunks, rows, finished, partials, slot_bytes;
};
WorkLayout LayoutOf(int max_rows, const AttentionShape& shape) {
  const int group = shape.n_heads / shape.n_kv_heads;
  const int head_blocks = (group + kMaxHeads - 1) / kMaxHeads;
  const int heads = (group + head_blocks - 1) / head_blocks;
  const int64_t n_blocks = int64_t{shape.n_kv_heads} * head_blocks;
  const int64_t list_bytes =
      Aligned(int64_t{max_rows} * static_cast<int64_t>(sizeof(AttentionItem)));
  WorkLayout layout;
  layout.chunks = kAlignment;
  layout.rows = layout.chunks + list_bytes;
  layout.finished = layout.rows + list_bytes;
  layout.partials = layout.finished + Aligned(max_rows * n_blocks * 4);
  layout.slot_bytes = n_blocks * heads * (shape.row + 4) * 4;
  return layout;
}

// Returns how many tiles chunks have at most: each piece but for its last tile fills them.
int MaxTiles(AttentionRange range, int tokens) {
  const int rows = range.to - range.from;
  if (range.only_rows || rows < 2) return 0;
  return rows / tokens + std::min(range.n_pieces, rows / 2);
}
int MaxSingleRows(AttentionRange range) {
  const int rows = range.to - range.from;
  return rows > range.n_pieces ? range.n_pieces - 1 : rows;
}

// Whether each multiprocessor has one block of a single row's kernel at most, row_blocks rows and
// head blocks together.
bool IsAlone(int row_blocks) { return row_blocks <= kMultiprocessors / 2; }

// Everything that layers of a step have in common.
AttentionPass PassOf(const int32_t* block, AttentionRange range, const AttentionShape& shape,
                     AttentionWork work) {
  AttentionPass pass = {};
  pass.block = block;
  pass.from = range.from;
  pass.to = range.to;
  pass.n_heads = shape.n_heads;
  pass.n_kv_heads = shape.n_kv_heads;
  pass.window = shape.window;
  pass.group = shape.n_heads / shape.n_kv_heads;
  pass.head_blocks = (pass.group + kMaxHeads - 1) / kMaxHeads;
  pass.heads = (pass.group + pass.head_blocks - 1) / pass.head_blocks;
  pass.factor = static_cast<float>(static_cast<double>(shape.scale) * 1.4426950408889634074);
  const int n_blocks = shape.n_kv_heads * pass.head_blocks;
  // Two blocks of a single row's kernel fit on a multiprocessor, or one with more stages.
  const int row_blocks = std::max(1, MaxSingleRows(range) * n_blocks);
  const int n_at_once = kMultiprocessors * (IsAlone(row_blocks) ? 1 : 2);
  const int n_splits = (n_at_once + (IsAlone(row_blocks) ? 0 : row_blocks - 1)) / row_blocks;
  pass.n_splits = std::clamp(n_splits, 1, kMaxSplits);
  pass.n_shares = std::max(1, n_at_once / n_blocks);
  // Larger tiles read keys less often, where there are enough of them for all multiprocessors.
  pass.chunk_rows = 64;
  if (int64_t{MaxTiles(range, 128 / pass.heads)} * n_blocks >= kMultiprocessors)
    pass.chunk_rows = 128;

  const WorkLayout layout = LayoutOf(work.max_rows, shape);
  auto* memory = static_cast<uint8_t*>(work.memory);
  pass.lists.counts = reinterpret_cast<int32_t*>(memory);
  pass.lists.chunks = reinterpret_cast<AttentionItem*>(memory + layout.chunks);
  pass.lists.rows = reinterpret_cast<AttentionItem*>(memory + layout.rows);
  pass.lists.finished = reinterpret_cast<int32_t*>(memory + layout.finished);
  pass.lists.partials = reinterpret_cast<float*>(memory + layout.partials);
  pass.lists.n_slots =
      static_cast<int>(std::min(kSlots, (work.bytes - layout.partials) / layout.slot_bytes));
  return pass;
}

bool IsValid(AttentionRange range, const AttentionShape& shape, AttentionWork work) {
  return IsValid(shape) && range.from >= 0 && range.from < range.to && range.n_pieces > 0 &&
         range.to - range.from <= work.max_rows &&
         work.bytes >= LayoutOf(work.max_rows, shape).partials;
}

template <int kRow, int kSlots>
cudaError_t LaunchRows(const AttentionPass& pass, int n_rows, cudaStream_t stream) {
  constexpr int kBytes = kRowSharedBytes<kRow, kSlots>;
  const cudaError_t error = cudaFuncSetAttribute(
      AttendRowKernel<kRow, kSlots>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const int64_t n_blocks = int64_t{pass.n_splits} * pass.n_kv_heads * pass.head_blocks;
  return LaunchDependent(AttendRowKernel<kRow, kSlots>, {n_rows, kRowThreads, kBytes, n_blocks},
                         stream, pass);
}

}  // namespace

int64_t AttentionWorkBytes(int max_rows, const AttentionShape& shape) {
  if (!IsValid(shape) || max_rows < 1) return 0;
  const WorkLayout layout = LayoutOf(max_rows, shape);
  return layout.partials + kSlots * layout.slot_bytes;
}

int64_t AttentionListBytes(int max_rows, const AttentionShape& shape) {
  return IsValid(shape) && max_rows > 0 ? LayoutOf(max_rows, shape).partials : 0;
}

cudaError_t PrepareAttention(const int32_t* block, AttentionRange range,
                             const AttentionShape& shape, AttentionWork work, cudaStream_t stream) {
  if (!IsValid(range, shape, work)) return cudaErrorInvalidValue;
  return LaunchDependent(ListKernel, {1, kListThreads, kListSharedBytes}, stream,
                         PassOf(block, range, shape, work));
}

cudaError_t Attend(const int32_t* block, AttentionRange range, const uint16_t* q,
                   const KvPlaneView& kv, const AttentionShape& shape, AttentionWork work,
                   uint16_t* out, cudaStream_t stream, ChunkKernel chunk_kernel) {
  if (!IsValid(range, shape, work)) return cudaErrorInvalidValue;
  if (kv.page_tokens != 16 && kv.page_tokens != 32 && kv.page_tokens != 64)
    return cudaErrorInvalidValue;
  AttentionPass pass = PassOf(block, range, shape, work);
  pass.q = q;
  pass.out = out;
  pass.pages = kv.base;
  pass.page_stride = kv.page_stride;
  pass.page_shift = kv.page_tokens == 16 ? 4 : kv.page_tokens == 32 ? 5 : 6;
  const int n_tiles = MaxTiles(range, pass.chunk_rows / pass.heads);
  const int n_rows = MaxSingleRows(range);
  if (n_tiles > 0) {
    const cudaError_t error = chunk_kernel == ChunkKernel::kMma
                                  ? AttendChunks(pass, shape.row, n_tiles, stream)
                                  : AttendByWarpgroups(pass, shape.row, n_tiles, stream);
    if (error != cudaSuccess) return error;
  }
  if (n_rows == 0) return cudaSuccess;
  if (shape.row == 64) return LaunchRows<64, 6>(pass, n_rows, stream);
  return IsAlone(n_rows * shape.n_kv_heads * pass.head_blocks)
             ? LaunchRows<128, 6>(pass, n_rows, stream)
             : LaunchRows<128, 3>(pass, n_rows, stream);
}

std::vector<KernelLaunch> AttentionLaunches() {
  std::vector<KernelLaunch> launches = ChunkLaunches();
  for (const KernelLaunch& launch : WarpgroupLaunches()) launches.push_back(launch);
  launches.push_back({"AttendRowKernel<64, 6>", kRowThreads, kRowSharedBytes<64, 6>});
  launches.push_back({"AttendRowKernel<128, 3>", kRowThreads, kRowSharedBytes<128, 3>});
  launches.push_back({"AttendRowKernel<128, 6>", kRowThreads, kRowSharedBytes<128, 6>});
  launches.push_back({"ListKernel", kListThreads, kListSharedBytes});
  return launches;
}

}  // namespace baton
