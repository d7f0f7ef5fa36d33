// Paged causal attention of numerics v1: absolute 128-key tiles and 512-key segments, folded in
// ascending order, the same for prefill and decode rows, so a row's bits do not depend on chunk,
// batch, threads or page size. GQA heads of one KV head share the K/V read.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "engine/cpu/linear/linear.h"
#include "engine/kv/kv_layout.h"
#include "engine/step/step.h"
#include "engine/threads/compute_pool.h"

namespace baton {

// Softmax state of rows that have not attended all their keys yet; memory of the caller.
struct PartialSoftmax {
  float* max = nullptr;  // (rows, n_heads)
  float* sum = nullptr;  // (rows, n_heads)
  float* out = nullptr;  // (rows, out_stride): n_heads * value_dim weighted values
  int64_t n_heads = 0, out_stride = 0;
  PartialSoftmax From(int64_t row) const {
    return {max + row * n_heads, sum + row * n_heads, out + row * out_stride, n_heads, out_stride};
  }
};

// Rows may attend their keys in several calls: a call takes the visible keys in [first, end), both
// multiples of 512 (an end beyond the last key: all). PartialSoftmax carries the state from call to
// call: read if the rows resume, written if they do not finish. Ranges in ascending order give the
// bits of a single call.
struct KeyRange {
  int first = 0, end = std::numeric_limits<int>::max();
  bool resumes = false, finishes = true;
};

struct AttentionArgs {
  const StepBatch* batch = nullptr;
  const KvLayout* layout = nullptr;
  KvPlaneTable planes;  // of the layer; K (after rope) and V of the step's rows are already written
  int layer = 0;
  int n_heads = 0;
  int window = 0;           // keys a row sees, itself included; 0 = all earlier ones
  double scale = 0;         // 1 / sqrt(head_dim) by default
  double soft_cap = 0;      // for scaled scores: cap * tanh(score / cap); 0 = none
  const bf16* q = nullptr;  // (n_tokens, q_stride): n_heads * key_dim, after rope
  int64_t q_stride = 0;
  bf16* out = nullptr;  // (n_tokens, out_stride): n_heads * value_dim
  int64_t out_stride = 0;
  KeyRange keys;
  PartialSoftmax kept;  // row 0: row 0 of the batch
};

class AttentionKernels {
 public:
  virtual ~AttentionKernels() = default;
  virtual void Run(const AttentionArgs& args, ComputePool& pool) = 0;
};

// Same paths as the linear kernels; every path gives the same bits.
std::unique_ptr<AttentionKernels> MakeAttentionKernels(Isa isa);
// The tile kernels of a path.
struct AttentionTileKernels;
const AttentionTileKernels& AttentionTileKernelsOf(Isa isa);
// Attention around given tile kernels (tests: emulated instructions).
std::unique_ptr<AttentionKernels> MakeAttentionKernelsOf(const AttentionTileKernels& kernels);
// Attention that computes every row against all keys that its page table has room for, and masks
// those it does not see: the same bits at the cost of engines that do so, for comparisons with
// them.
std::unique_ptr<AttentionKernels> MakeDenseMaskAttentionOf(const AttentionTileKernels& kernels);

}  // namespace baton
