// The content of a Hugging Face config.json as data. The forward pass reads these fields; there are
// no per-family classes. An unsupported architecture, rope type or field is an error that names it.
// Plain values: constant once the model is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine/model/experts_desc.h"
#include "engine/model/latent_desc.h"
#include "engine/model/quantization_desc.h"
#include "engine/model/rope.h"
#include "engine/model/tensor_names.h"

namespace baton {

enum class Dtype { kFp32, kBf16, kFp16 };
enum class Activation { kSilu, kGelu, kGeluTanh };  // kGelu: exact, by erf

struct ModelDesc {
  std::string architecture;  // "LlamaForCausalLM", "Qwen2ForCausalLM", ...
  std::string name;          // last component of the folder; default model id of the API
  Dtype checkpoint_dtype = Dtype::kBf16;
  int n_layers = 0;
  int hidden = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;      // latent attention: the width that RoPE rotates
  int intermediate = 0;  // width of the MLP in layers that are not sparse
  int vocab = 0;
  int max_positions = 0;  // context length in tokens
  double norm_eps = 1e-5;
  bool layer_norm = false;     // LayerNorm with biases instead of RMSNorm
  bool norm_plus_one = false;  // norms multiply by 1 + weight
  bool output_norms = false;   // norms of the outputs of attention and MLP, before the residual sum
  bool parallel_mlp = false;   // x + attention(norm(x)) + MLP(norm(x)), both of the same x
  bool mlp_norm = true;        // false (only with parallel_mlp): the MLP reads the attention's norm
  bool gated_mlp = true;       // down(activation(gate(x)) * up(x)), else down(activation(up(x)))
  Activation activation = Activation::kSilu;
  double embedding_scale = 1;  // the bf16 engine rounds it to bf16
  double score_scale = 0;      // factor of the scores q k
  double score_cap = 0;        // scores become cap * tanh(score / cap); 0 = none
  double logit_cap = 0;        // the same function for logits; 0 = none
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of every q and k head before RoPE
  bool tied_embeddings = false;
  std::vector<int> windows;  // (n_layers) keys a query sees, itself included; 0 = all earlier ones
  LatentDesc latent;
  ExpertsDesc experts;
  int rotary_dim = 0;  // leading values of a head that RoPE rotates: pairs (i, i + rotary_dim / 2)
  RopeDesc rope;
  std::optional<RopeDesc> window_rope;      // rope of the layers with a window, if different
  const TensorNames* names = &kLlamaNames;  // names of the checkpoint's tensors
  QuantizationDesc quantization;            // how the checkpoint stores its matrices
  std::vector<int32_t> eos_tokens;          // generation_config.json first, then config.json

  // Reads config.json (both spellings, transformers 4 and 5) and generation_config.json in
  // `folder`. NotFound: no such folder, or no config.json in it. InvalidArgument names file, field,
  // value and what is supported.
  static absl::StatusOr<ModelDesc> FromFolder(const std::string& folder);
  // Parses the text of a config.json; `origin` is named in errors, InvalidArgument as above.
  static absl::StatusOr<ModelDesc> FromJson(std::string_view text, const std::string& origin);
  // The longest context that can be requested: max_positions, or unlimited with dynamic RoPE.
  int max_model_context() const;
  // Sets the served context to `context` tokens, CHECKed to be 1..max_model_context():
  // max_positions, and the frequencies of dynamic RoPE that depend on it.
  void ServeContext(int context);
  int64_t n_parameters() const;
  // All fields that affect the values that the weights compute, as text: equal for both spellings
  // of a config. Part of fingerprints and of the key of packed weights.
  std::string Canonical() const;
  // kv_heads * head_dim: width of K (and V) of one token in one layer.
  int kv_width() const { return n_kv_heads * head_dim; }
  // Width of the projected queries, and of the attention output that the output projection reads.
  int q_width() const { return n_heads * (latent.rank > 0 ? latent.query_dim() : head_dim); }
  int attended_width() const { return n_heads * (latent.rank > 0 ? latent.value_dim : head_dim); }
};

}  // namespace baton
