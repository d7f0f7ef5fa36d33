// Row-wise operations of the CUDA engine: embeddings, norms, RoPE and the writing of keys and
// values. Rules N3 to N6 of docs/NUMERICS.md, bit for bit those of the CPU. Functions put work into
// a stream of the calling thread's device and return the launch's error.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "engine/cuda/attention.h"
#include "engine/cuda/block_view.h"
#include "engine/cuda/kernel_launch.h"

namespace baton {

// (rows, stride) bf16 of the GPU; a row's values behind `width` are zeros.
struct BfRows {
  uint16_t* data = nullptr;
  int stride = 0;  // a multiple of 64
};

// Fills `rows` from the block of n_rows rows. sampled: tokens that the step before has sampled;
// null: none is fed. A fed token that is no id below vocab becomes 0.
cudaError_t PrepareRows(const int32_t* block, int n_rows, const int32_t* sampled, int vocab,
                        StepRowsView rows, cudaStream_t stream);

// x[i] = table[tokens[i]] (width), bf16(value * scale) if scale is not 1 (scale is a bf16 number);
// zero-fills up to x.stride. Rows of the table are x.stride apart.
cudaError_t Embed(const int32_t* tokens, int n_rows, const uint16_t* table, int width, float scale,
                  BfRows x, cudaStream_t stream);

struct NormArguments {
  const float* weight = nullptr;  // (width)
  const float* bias = nullptr;    // (width) LayerNorm; null: RMSNorm
  float eps = 0;
  int width = 0;
};
// out = norm(x), zero-filled up to out.stride. out may be x.
cudaError_t Norm(BfRows x, int n_rows, const NormArguments& norm, BfRows out, cudaStream_t stream);
// out[i] = norm(x[rows[i]]); rows: (n_rows) of the GPU.
cudaError_t NormGathered(BfRows x, const int32_t* rows, int n_rows, const NormArguments& norm,
                         BfRows out, cudaStream_t stream);
// x = bf16(x + y)
cudaError_t Add(BfRows y, int n_rows, int width, BfRows x, cudaStream_t stream);

struct RotateShape {
  int n_heads = 0, n_kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int row = 0;  // head_dim rounded up to 64
};
struct RotateArguments {
  // (positions, rotary_dim / 2) cos, then sin, of short and of long ropes (equal if there is one).
  const float* cos[2] = {};
  const float* sin[2] = {};
  const float* q_norm = nullptr;  // (head_dim) RMSNorm of each head before RoPE; null: none
  const float* k_norm = nullptr;
  float eps = 0;
};
// Takes rows [from, to) of the block: qkv (rows, (n_heads + 2 n_kv_heads) * head_dim) -> q (rows,
// n_heads * row) after norm and RoPE, zeros behind head_dim; keys after norm and RoPE, and values,
// go to their pages.
cudaError_t RotateAndStore(const int32_t* block, const int32_t* pieces, int from, int to,
                           BfRows qkv, const RotateShape& shape, const RotateArguments& arguments,
                           const KvPlaneView& kv, BfRows q, cudaStream_t stream);

// logits = cap * tanh(logits / cap); a NaN becomes 0x7fc00000. cap 0: only that.
cudaError_t FinishLogits(float* logits, int64_t n, float cap, cudaStream_t stream);

std::vector<KernelLaunch> RowLaunches();

}  // namespace baton
