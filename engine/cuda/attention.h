// Attention of the CUDA engine over pages of keys and values. Functions put work into a stream of
// the calling thread's device and return the launch's error.
//
// Order of sums (docs/CUDA.md): keys in tiles of 128 at absolute positions, tiles in segments of
// 512 keys, segments folded upwards, so bits depend neither on chunk nor batch nor page size nor on
// which kernel computes a row.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/kernel_launch.h"

namespace baton {

// Keys and values of one layer: page p lies at base + p * page_stride, K (n_kv_heads, page_tokens,
// row) first, then V of the same shape, in bf16. row: head_dim rounded up to 64; zeros behind it.
struct KvPlaneView {
  uint8_t* base = nullptr;
  int64_t page_stride = 0;  // bytes
  int page_tokens = 0;      // 16, 32 or 64
};

struct AttentionShape {
  int n_heads = 0, n_kv_heads = 0;
  int row = 0;      // 64 or 128: values of a head, zeros behind head_dim
  int window = 0;   // keys that a query sees, itself included; 0: all
  float scale = 0;  // of the scores, above 0
};

// Lists that PrepareAttention makes, and partial results. Memory of the GPU.
struct AttentionWork {
  void* memory = nullptr;
  int64_t bytes = 0;  // AttentionWorkBytes
  int max_rows = 0;
};
int64_t AttentionWorkBytes(int max_rows, const AttentionShape& shape);
// The least that `bytes` may be: with no room for partial results a block computes a row alone,
// with the same bits.
int64_t AttentionListBytes(int max_rows, const AttentionShape& shape);

// Which pieces a launch may meet, known to the host: less work is launched.
struct AttentionRange {
  int from = 0, to = 0;    // rows [from, to) of the block, to - from <= max_rows
  int n_pieces = 0;        // of the block
  bool only_rows = false;  // each piece is one row (n_pieces == rows of the block)
};

// Once per block and range, before the layers: finds the tiles of rows.
cudaError_t PrepareAttention(const int32_t* block, AttentionRange range,
                             const AttentionShape& shape, AttentionWork work, cudaStream_t stream);

// Which kernel computes pieces with more than one row: kMma is the reference, with the same bits.
enum class ChunkKernel { kWarpgroups, kMma };

// q, out: (rows of the range, n_heads * row) bf16, q after RoPE; row 0 is row `from` of the block.
// The keys of the rows themselves are in the pages already.
cudaError_t Attend(const int32_t* block, AttentionRange range, const uint16_t* q,
                   const KvPlaneView& kv, const AttentionShape& shape, AttentionWork work,
                   uint16_t* out, cudaStream_t stream,
                   ChunkKernel chunk_kernel = ChunkKernel::kWarpgroups);

std::vector<KernelLaunch> AttentionLaunches();

}  // namespace baton
