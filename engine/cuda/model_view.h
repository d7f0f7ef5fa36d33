// A model as the CUDA engine computes it: its shape, and where its weights lie in memory of the
// GPU. Plain data, shared by the plugin and the binary.
//
// Matrices are bf16, a row per output, rows as long as the input rounded up to 64, zeros behind it;
// vectors are fp32 numbers that were rounded to bf16 first. Null: the model has none.
#pragma once

#include <cstdint>

#include "engine/cuda/gemm_output.h"

namespace baton {

struct NormView {
  const float* weight = nullptr;
  const float* bias = nullptr;  // LayerNorm
};

struct LayerView {
  NormView attention_norm, mlp_norm, attention_out_norm, mlp_out_norm;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  const uint16_t* qkv = nullptr;  // heads of q, k and v, one behind the other
  const float* qkv_bias = nullptr;
  const uint16_t* o =
      nullptr;  // (hidden, n_heads * row): a head's inputs begin at multiples of row
  const float* o_bias = nullptr;
  const uint16_t* gate_up = nullptr;  // gate and up in turns of 8 outputs; up alone if not gated
  const float* gate_up_bias = nullptr;
  const uint16_t* down = nullptr;
  const float* down_bias = nullptr;
  int64_t plane_offset = 0;  // of the layer's keys and values in a page
  int32_t window = 0;        // keys that a query sees; 0: all
  int32_t ropes = 0;         // index of ModelView::ropes
};

struct RopeView {
  const float* cos[2] = {};  // (positions, rotary_dim / 2) of the short and of the long range
  const float* sin[2] = {};
};

enum class MlpKind : int32_t { kSwiGlu, kGeGlu, kGelu };

struct ModelView {
  int32_t n_layers = 0, hidden = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, rotary_dim = 0;
  int32_t intermediate = 0, vocab = 0;
  MlpKind mlp = MlpKind::kSwiGlu;
  int32_t parallel_mlp = 0, mlp_norm = 1, output_norms = 0;  // ModelDesc
  float norm_eps = 0, embedding_scale = 1, score_scale = 0, logit_cap = 0;
  int32_t page_tokens = 64;
  int64_t page_bytes = 0;
  int32_t max_step_rows = 0, max_slice_rows = 0;
  const uint16_t* embedding = nullptr;  // (vocab, hidden rounded up)
  const uint16_t* lm_head = nullptr;
  NormView final_norm;
  RopeView ropes[2];
  const LayerView* layers = nullptr;  // (n_layers) in memory of the host; is copied

  int row() const { return (head_dim + 63) / 64 * 64; }  // values that a head has in q and in pages
  int hidden_stride() const { return (hidden + 63) / 64 * 64; }
  int mlp_stride() const { return (intermediate + 63) / 64 * 64; }
  int qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
  // Outputs of gate_up, those that fill its last turn up included.
  int gate_up_width() const {
    return mlp == MlpKind::kGelu ? intermediate : (intermediate + 7) / 8 * 16;
  }
  GemmEnd gate_up_end() const {
    return mlp == MlpKind::kSwiGlu  ? GemmEnd::kSwiGlu
           : mlp == MlpKind::kGeGlu ? GemmEnd::kGeGlu
                                    : GemmEnd::kGelu;
  }
};

// Counts of a block that the host knows at each launch, those of its graph included.
struct StepCounts {
  int32_t n_rows = 0, n_pieces = 0, n_logits = 0, n_scored = 0;
};

}  // namespace baton
