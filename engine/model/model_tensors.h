// Lists every tensor of a model: its name here, its shape, and its place in a checkpoint. The rest
// of the engine uses only these names, equal for all families:
//
//   embed, final_norm, lm_head (absent if tied), and of layer N "layers.N." with
//   attention_norm, q, k, v, o, q_norm, k_norm, mlp_norm, gate, up, down, attention_out_norm,
//   mlp_out_norm, of which a family may lack some; a bias is "layers.N.q.bias".
//   A sparse layer has instead of gate, up and down: router, experts.E.gate, experts.E.up,
//   experts.E.down, correction, shared_gate, shared.gate, shared.up, shared.down. Latent attention
//   has instead of k and v: latent, latent_norm, key_up, value_up; and before q, where queries come
//   from a latent too: query_latent, query_latent_norm
// Pure function, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_desc.h"

namespace baton {

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct TensorSpec {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 1;
  bool is_vector = false;  // norms and biases: one column
  bool is_norm = false;
  float norm_offset = 0;   // added by the engine to a norm's stored weights
  uint32_t random_id = 0;  // tensor id of the random weights (docs/MODELS.md)
  // Name of the published tensor that holds the rows ("model.layers.0.self_attn.q_proj.weight"); it
  // may hold several tensors of this list.
  std::string stored_name;
  int64_t stored_rows = 0;              // rows of the whole published tensor
  std::vector<RowRange> stored_ranges;  // `rows` rows in total, in the order of this tensor
};

// All tensors in the order of the forward pass; embedding first.
std::vector<TensorSpec> TensorsOf(const ModelDesc& model);

}  // namespace baton
