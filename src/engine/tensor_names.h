// How a family's checkpoints name their tensors: data, pointed to by ModelDesc. Names are without
// ".weight" and ".bias"; those of a layer follow `layers`, the layer's number and a dot.
#pragma once

#include <string_view>

namespace baton {

struct TensorNames {
  std::string_view embed, layers, final_norm, lm_head;
  std::string_view attention_norm, q, k, v, o, q_norm, k_norm;
  std::string_view mlp_norm, gate, up, down;
};

inline constexpr TensorNames kLlamaNames = {
    .embed = "model.embed_tokens",
    .layers = "model.layers.",
    .final_norm = "model.norm",
    .lm_head = "lm_head",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .o = "self_attn.o_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .mlp_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
};

}  // namespace baton
