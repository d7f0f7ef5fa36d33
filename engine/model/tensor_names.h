// Names of the tensors in a family's checkpoints: constant data, pointed to by ModelDesc. Names
// lack ".weight" and ".bias"; names of a layer follow `layers`, the layer's number and a dot.
#pragma once

#include <string_view>

namespace baton {

// An empty name: the family has no such tensor.
struct TensorNames {
  std::string_view embed = {}, layers = {}, final_norm = {}, lm_head = {};
  std::string_view attention_norm = {}, q = {}, k = {}, v = {}, o = {}, q_norm = {}, k_norm = {};
  std::string_view mlp_norm = {}, gate = {}, up = {}, down = {};
  std::string_view attention_out_norm = {}, mlp_out_norm = {};
  // Sparse layers: names of expert N follow `experts`, N and a dot; names of the shared expert
  // follow `shared`.
  std::string_view router = {}, experts = {}, expert_gate = {}, expert_up = {}, expert_down = {},
                   shared = {}, shared_gate = {}, correction = {};  // correction: the whole name
  // q, k and v as rows of one tensor: first all of q, then k, then v; or, with qkv_by_kv_head, the
  // same order within each KV head and its query heads.
  std::string_view qkv = {};
  bool qkv_by_kv_head = false;
  // Latent attention: projection to the latent and the shared key part; norm of the latent;
  // projections of every head to its key and value.
  std::string_view latent = {}, latent_norm = {}, latent_up = {};
  // Latent attention whose queries have their own latent.
  std::string_view query_latent = {}, query_latent_norm = {}, query_up = {};
  std::string_view gate_up = {};  // gate and up as rows of one tensor
  // True: rows of q and k that RoPE rotates together are neighbours in each head. False: the second
  // halves follow the first halves.
  bool qk_in_pairs = false;
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
    .router = "mlp.gate",
    .experts = "mlp.experts.",
    .expert_gate = "gate_proj",
    .expert_up = "up_proj",
    .expert_down = "down_proj",
    .shared = "mlp.shared_expert.",
    .shared_gate = "mlp.shared_expert_gate",
};

inline constexpr TensorNames kMixtralNames = [] {
  TensorNames names = kLlamaNames;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  return names;
}();

inline constexpr TensorNames kDeepSeekNames = [] {
  TensorNames names = kLlamaNames;
  names.latent = "self_attn.kv_a_proj_with_mqa";
  names.latent_norm = "self_attn.kv_a_layernorm";
  names.latent_up = "self_attn.kv_b_proj";
  names.query_latent = "self_attn.q_a_proj";
  names.query_latent_norm = "self_attn.q_a_layernorm";
  names.query_up = "self_attn.q_b_proj";
  names.correction = "mlp.gate.e_score_correction_bias";
  names.shared = "mlp.shared_experts.";
  return names;
}();

inline constexpr TensorNames kGemma2Names = [] {
  TensorNames names = kLlamaNames;
  names.attention_out_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.mlp_out_norm = "post_feedforward_layernorm";
  return names;
}();

// The text part of a model that also sees images.
inline constexpr TensorNames kGemma3TextPartNames = [] {
  TensorNames names = kGemma2Names;
  names.embed = "language_model.model.embed_tokens";
  names.layers = "language_model.model.layers.";
  names.final_norm = "language_model.model.norm";
  names.lm_head = "language_model.lm_head";
  return names;
}();

inline constexpr TensorNames kPhi3Names = [] {
  TensorNames names = kLlamaNames;
  names.qkv = "self_attn.qkv_proj";
  names.gate_up = "mlp.gate_up_proj";
  return names;
}();

// Names in GGUF files. Llama's files have the rows of q and k in pairs.
inline constexpr TensorNames kGgufNames = {
    .embed = "token_embd",
    .layers = "blk.",
    .final_norm = "output_norm",
    .lm_head = "output",
    .attention_norm = "attn_norm",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .o = "attn_output",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .mlp_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
};
inline constexpr TensorNames kGgufLlamaNames = [] {
  TensorNames names = kGgufNames;
  names.qk_in_pairs = true;
  return names;
}();

constexpr TensorNames FalconNames(std::string_view attention_norm, std::string_view mlp_norm) {
  return {.embed = "transformer.word_embeddings",
          .layers = "transformer.h.",
          .final_norm = "transformer.ln_f",
          .lm_head = "lm_head",
          .attention_norm = attention_norm,
          .o = "self_attention.dense",
          .mlp_norm = mlp_norm,
          .up = "mlp.dense_h_to_4h",
          .down = "mlp.dense_4h_to_h",
          .qkv = "self_attention.query_key_value",
          .qkv_by_kv_head = true};
}
inline constexpr TensorNames kFalconNames = FalconNames("input_layernorm", "");
inline constexpr TensorNames kFalconTwoNormNames = FalconNames("ln_attn", "ln_mlp");

}  // namespace baton
