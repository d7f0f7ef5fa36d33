// What a Hugging Face config.json says, as data. The forward pass reads these fields; there are no
// per-family classes. An architecture, rope type or field we do not support is an error that names
// it.
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
  std::string name;          // last component of the folder: the default model id of the API
  Dtype checkpoint_dtype = Dtype::kBf16;
  int n_layers = 0;
  int hidden = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;      // of latent attention: what RoPE rotates
  int intermediate = 0;  // of the MLP of a layer that is not sparse
  int vocab = 0;
  int max_positions = 0;  // context length
  double norm_eps = 1e-5;
  bool layer_norm = false;     // LayerNorm with biases instead of RMSNorm
  bool norm_plus_one = false;  // norms multiply by 1 + weight
  bool output_norms = false;   // norms of what attention and MLP give, before it is added
  bool parallel_mlp = false;   // x + attention(norm(x)) + MLP(norm(x)), both of the same x
  bool mlp_norm = true;        // else (parallel_mlp) the MLP reads what attention reads
  bool gated_mlp = true;       // down(activation(gate(x)) * up(x)), else down(activation(up(x)))
  Activation activation = Activation::kSilu;
  double embedding_scale = 1;  // the bf16 engine rounds it to bf16
  double score_scale = 0;      // of q k
  double score_cap = 0;        // scores become cap * tanh(score / cap); 0 = none
  double logit_cap = 0;        // the same of logits
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of every q and k head before RoPE
  bool tied_embeddings = false;
  std::vector<int> windows;  // (n_layers) keys a query sees, its own included; 0 = all before it
  LatentDesc latent;
  ExpertsDesc experts;
  int rotary_dim = 0;  // of a head's first values, what RoPE rotates: pairs (i, i + rotary_dim / 2)
  RopeDesc rope;
  std::optional<RopeDesc> window_rope;      // of the layers with a window, where it is another one
  const TensorNames* names = &kLlamaNames;  // of the checkpoint's tensors
  QuantizationDesc quantization;            // how the checkpoint stores its matrices
  std::vector<int32_t> eos_tokens;          // generation_config.json first, then config.json

  // Errors name file, field, value and what is supported.
  // Reads config.json (both spellings, transformers 4 and 5) and generation_config.json in
  // `folder`.
  static absl::StatusOr<ModelDesc> FromFolder(const std::string& folder);
  // Parses the text of a config.json; `origin` is named in errors.
  static absl::StatusOr<ModelDesc> FromJson(std::string_view text, const std::string& origin);
  // The longest context that can be asked for: max_positions, or any where RoPE follows (dynamic).
  int max_model_context() const;
  // Serves sequences of at most `context` tokens, 1..max_model_context(): max_positions, and with
  // it the frequencies of dynamic RoPE.
  void ServeContext(int context);
  int64_t n_parameters() const;
  // The fields that decide what the weights compute, as text: equal for both spellings of a config.
  // Part of fingerprints and of the key of packed weights.
  std::string Canonical() const;
  // kv_heads * head_dim: width of K (and V) of one token in one layer.
  int kv_width() const { return n_kv_heads * head_dim; }
  // Of the queries as projected, and of what attention gives to the output projection.
  int q_width() const { return n_heads * (latent.rank > 0 ? latent.query_dim() : head_dim); }
  int attended_width() const { return n_heads * (latent.rank > 0 ? latent.value_dim : head_dim); }
};

}  // namespace baton
